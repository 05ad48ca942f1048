//! The rotation of queries and keys, and its tables.

use backend_api::desc::RopeStyle;

use super::{Architecture, Keys};
use crate::gguf::{Gguf, TensorType};
use crate::{Error, Result};

/// Tensors that hold factors of wavelengths: for all contexts, and up to the original one and beyond it.
pub(crate) const FACTORS: [&str; 3] =
    ["rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"];

/// The usual base of the wavelengths.
const DEFAULT_BASE: f64 = 10_000.0;

/// How long contexts change the wavelengths.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions are divided by a factor.
    Linear(f64),
    /// Wavelengths are multiplied by a factor for each pair (Llama 3.1).
    Factors(Vec<f64>),
    /// As `Factors`, and a factor of the rotated vectors: YaRN, which leaves short wavelengths as they are, multiplies long
    /// ones by a factor, and those between by less.
    Yarn {
        /// For each pair, by what its wavelength is multiplied.
        factors: Vec<f64>,
        /// Multiplies cosines and sines.
        magnitude: f64,
    },
    /// As `Factors`, with others beyond the original context, and a factor of the rotated vectors (Phi 3's
    /// longrope).
    Long {
        /// Up to the original context.
        short: Vec<f64>,
        /// Beyond it.
        long: Vec<f64>,
        /// The original context.
        original: usize,
        /// Multiplies cosines and sines.
        magnitude: f64,
    },
}

/// Rotary position embedding of a model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RopeConfig {
    /// Which numbers are paired.
    pub style: RopeStyle,
    /// How many numbers of a head are rotated.
    pub dim: usize,
    /// Base of the wavelengths.
    pub base: f64,
    /// Base in layers with a window, if these don't scale (Gemma 3, OLMo 3).
    pub window_base: Option<f64>,
    /// Scaling in all other layers.
    pub scaling: RopeScaling,
    /// Of how many layers in a row the last one isn't rotated (NoPE, Kazemnejad et al. 2023), if there are such layers.
    pub no_rope_interval: Option<usize>,
}

impl RopeConfig {
    pub(super) fn new(
        keys: &Keys<'_>,
        file: &Gguf<'_>,
        architecture: Architecture,
        (head_dim, has_window): (usize, bool),
    ) -> Result<Self> {
        let dim = keys.size_or("rope.dimension_count", head_dim)?;
        keys.require(
            "rope.dimension_count",
            dim % 2 == 0 && dim <= head_dim,
            format!("even, up to {head_dim}"),
            dim,
        )?;
        if matches!(architecture, Architecture::Glm4 | Architecture::HunyuanDense) {
            // Models that look at images rotate otherwise.
            keys.refuse("rope.dimension_sections")?;
            keys.refuse("rope.scaling.alpha")?;
        }
        let gemma3 = architecture == Architecture::Gemma3;
        let is_window_apart = gemma3 || architecture == Architecture::Olmo2 && has_window;
        let base = if gemma3 {
            // Far from the usual one, so that a file has to say it. Early files from Ollama have another name for it.
            keys.number(keys.either(["rope.freq_base", "rope.global.freq_base"]))?
        } else {
            keys.number_or("rope.freq_base", DEFAULT_BASE)?
        };
        keys.require("rope.freq_base", base > 0.0, "more than 0", base)?;
        let key = keys.either(["rope.freq_base_swa", "rope.local.freq_base"]);
        let window_base = keys.number_or(key, if gemma3 { DEFAULT_BASE } else { base })?;
        keys.require(key, window_base > 0.0, "more than 0", window_base)?;
        keys.require(key, is_window_apart || window_base == base, base, window_base)?;
        let no_rope_interval = match architecture {
            // Files of a model that isn't rotated say that it wasn't trained to be.
            granite if granite.is_granite() => {
                keys.flag("rope.scaling.finetuned")?.is_some_and(|rotates| !rotates).then_some(1)
            }
            Architecture::SmolLm3 => Some(4),
            // Layers that see all keys where others have a window.
            Architecture::Exaone4 | Architecture::Cohere2 => {
                has_window.then_some(architecture.window_pattern())
            }
            _ => None,
        };
        Ok(Self {
            style: if architecture.has_neighbouring_pairs() {
                RopeStyle::Interleaved
            } else {
                RopeStyle::Half
            },
            dim,
            base,
            window_base: is_window_apart.then_some(window_base),
            scaling: scaling(keys, file, architecture, (dim, base))?,
            no_rope_interval,
        })
    }

    /// Whether queries and keys of layer `index` are rotated.
    #[must_use]
    pub fn rotates(&self, index: usize) -> bool {
        self.no_rope_interval.is_none_or(|interval| !(index + 1).is_multiple_of(interval))
    }

    /// Cosines and sines, each `[positions, dim/2]`, of layers with or without a window, in a cache of so many
    /// positions.
    #[must_use]
    pub fn tables(&self, positions: usize, window: bool) -> (Vec<f32>, Vec<f32>) {
        let pairs = self.dim / 2;
        let (base, scaling) = match self.window_base {
            Some(base) if window => (base, &RopeScaling::None),
            _ => (self.base, &self.scaling),
        };
        let (factors, divisor, magnitude): (&[f64], _, _) = match scaling {
            RopeScaling::None => (&[], 1.0, 1.0),
            RopeScaling::Linear(factor) => (&[], *factor, 1.0),
            RopeScaling::Factors(factors) => (factors, 1.0, 1.0),
            RopeScaling::Yarn { factors, magnitude } => (factors, 1.0, *magnitude),
            RopeScaling::Long { short, long, original, magnitude } => {
                (if positions > *original { long } else { short }, 1.0, *magnitude)
            }
        };
        let frequency = |pair: usize| {
            let factor = factors.get(pair).copied().unwrap_or(1.0) * divisor;
            base.powf(-2.0 * pair as f64 / self.dim as f64) / factor
        };
        let frequencies: Vec<f64> = (0..pairs).map(frequency).collect();
        let angles =
            (0..positions).flat_map(|at| frequencies.iter().map(move |frequency| at as f64 * frequency));
        angles.map(|angle| ((magnitude * angle.cos()) as f32, (magnitude * angle.sin()) as f32)).unzip()
    }
}

/// How a file's metadata and tensors scale rotations of `dim` numbers. What isn't computed here is an error.
fn scaling(
    keys: &Keys<'_>,
    file: &Gguf<'_>,
    architecture: Architecture,
    (dim, base): (usize, f64),
) -> Result<RopeScaling> {
    let pairs = dim / 2;
    let kind = keys.text("rope.scaling.type")?;
    let magnitude = keys.number_or("rope.scaling.attn_factor", 1.0)?;
    let [all, short, long] = FACTORS;
    match (factors(file, short, pairs)?, factors(file, long, pairs)?) {
        (Some(short), Some(long)) => {
            keys.require(
                "rope.scaling.type",
                matches!(kind, None | Some("longrope")),
                "longrope",
                text(kind),
            )?;
            let divisor = divisor(keys)?;
            keys.require("rope.scaling.factor", divisor == 1.0, "1 beside factors of pairs", divisor)?;
            let original = keys.size("rope.scaling.original_context_length")?;
            return Ok(RopeScaling::Long { short, long, original, magnitude });
        }
        (None, None) => {}
        (None, Some(_)) => return Err(Error::MissingTensor { name: short.to_owned() }),
        (Some(_), None) => return Err(Error::MissingTensor { name: long.to_owned() }),
    }
    if kind == Some("yarn") {
        let name = all.to_owned();
        if let Some(tensor) = file.tensor(&name) {
            let expected = "not there beside YaRN".to_owned();
            return Err(Error::Tensor { name, expected, got: format!("{:?}", tensor.shape) });
        }
        // Its authors round the ends of the range between short and long wavelengths to whole pairs; gpt-oss was trained
        // without that, which files don't say.
        let is_rounded = architecture != Architecture::GptOss;
        let is_mistral = architecture == Architecture::Mistral3;
        return yarn(keys, (dim, base), magnitude, [is_rounded, is_mistral]);
    }
    let is_known = matches!(kind, None | Some("none" | "linear"));
    keys.require("rope.scaling.type", is_known, "none, linear or yarn", text(kind))?;
    let expected = "1 without YaRN and long factors";
    keys.require("rope.scaling.attn_factor", magnitude == 1.0, expected, magnitude)?;
    // Without a type, a factor is that of linear scaling.
    let divisor = if kind == Some("none") { 1.0 } else { divisor(keys)? };
    if let Some(factors) = factors(file, all, pairs)? {
        keys.require("rope.scaling.factor", divisor == 1.0, "1 beside factors of pairs", divisor)?;
        return Ok(RopeScaling::Factors(factors));
    }
    Ok(if divisor == 1.0 { RopeScaling::None } else { RopeScaling::Linear(divisor) })
}

/// YaRN (Peng et al. 2023): pairs that turn more than `beta_fast` times in the original context rotate as ever, those that
/// turn less than `beta_slow` times are slowed down by the factor, and the others in between.
fn yarn(
    keys: &Keys<'_>,
    (dim, base): (usize, f64),
    attention_factor: f64,
    [is_rounded, may_have_divisor]: [bool; 2],
) -> Result<RopeScaling> {
    let factor = divisor(keys)?;
    keys.require("rope.scaling.factor", factor >= 1.0, "1 or more", factor)?;
    keys.require("rope.freq_base", base > 1.0, "more than 1 with YaRN", base)?;
    let original = keys.size("rope.scaling.original_context_length")? as f64;
    let positive = |key: &str, default: f64| {
        let number = keys.number_or(key, default)?;
        keys.require(key, number > 0.0, "more than 0", number)?;
        Ok::<_, Error>(number)
    };
    let fast = positive("rope.scaling.yarn_beta_fast", 32.0)?;
    let slow = positive("rope.scaling.yarn_beta_slow", 1.0)?;
    let more = positive("rope.scaling.yarn_attn_factor", 1.0)?;
    // A negative number stands for the one that the type has.
    let mix = keys.number_or("rope.scaling.yarn_ext_factor", 1.0)?;
    keys.require("rope.scaling.yarn_ext_factor", mix == 1.0 || mix < 0.0, 1, mix)?;
    // Of the divisor of the magnitude, which DeepSeek's authors call mscale_all_dim.
    let key = "rope.scaling.yarn_log_multiplier";
    let logarithms = keys.number_or(key, 0.0)?;
    keys.require(key, logarithms == 0.0 || may_have_divisor, 0, logarithms)?;
    keys.require(key, logarithms >= 0.0, "0 or more", logarithms)?;
    // The pair that turns so many times in the original context.
    let pair_of =
        |turns: f64| dim as f64 * (original / (turns * std::f64::consts::TAU)).ln() / (2.0 * base.ln());
    let (low, high) = (pair_of(fast), pair_of(slow));
    let (low, high) = if is_rounded { (low.floor(), high.ceil()) } else { (low, high) };
    let (low, high) = (low.max(0.0), high.min(dim as f64 - 1.0));
    let factors = (0..dim / 2).map(|pair| {
        let slowed = ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
        (1.0 - slowed + slowed / factor).recip()
    });
    let magnitude_of = |multiplier: f64| 1.0 + 0.1 * multiplier * factor.ln();
    let magnitude = attention_factor * more * magnitude_of(1.0) / magnitude_of(logarithms);
    Ok(RopeScaling::Yarn { factors: factors.collect(), magnitude })
}

/// The text of a key that may be missing, for errors.
fn text(of: Option<&str>) -> &str {
    of.unwrap_or_default()
}

/// By how much positions are divided, under either of the names that GGUF has had for it; 0 stands for 1.
fn divisor(keys: &Keys<'_>) -> Result<f64> {
    let older = keys.number_or("rope.scale_linear", 1.0)?;
    let factor = keys.number_or("rope.scaling.factor", older)?;
    keys.require("rope.scaling.factor", factor >= 0.0, "0 or more", factor)?;
    Ok(if factor == 0.0 { 1.0 } else { factor })
}

/// A factor for each pair, from an f32 tensor that a file may have.
fn factors(file: &Gguf<'_>, name: &str, pairs: usize) -> Result<Option<Vec<f64>>> {
    let Some(tensor) = file.tensor(name) else { return Ok(None) };
    let numbers: Vec<f64> =
        tensor.data.as_chunks().0.iter().map(|&bytes| f64::from(f32::from_le_bytes(bytes))).collect();
    let fits = tensor.kind == TensorType::F32 && tensor.shape == [pairs];
    if fits && numbers.iter().all(|&factor| factor.is_normal()) {
        return Ok(Some(numbers));
    }
    let expected = format!("F32 [{pairs}], finite and not 0");
    Err(Error::Tensor { name: name.to_owned(), expected, got: format!("{} {:?}", tensor.kind, tensor.shape) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Up to the original context the short factors divide frequencies, and beyond it the long ones, of all positions.
    #[test]
    fn long_factors_are_those_of_contexts_beyond_the_original() {
        let scaling =
            RopeScaling::Long { short: vec![1.0, 2.0], long: vec![4.0, 8.0], original: 10, magnitude: 1.25 };
        let rope = RopeConfig {
            style: RopeStyle::Half,
            dim: 4,
            base: 100.0,
            window_base: None,
            scaling,
            no_rope_interval: None,
        };
        for (positions, factors) in [(10, [1.0, 2.0]), (11, [4.0, 8.0])] {
            let (cosines, sines) = rope.tables(positions, false);
            assert_eq!((cosines.len(), sines.len()), (2 * positions, 2 * positions));
            for position in 0..positions {
                // Of 4 numbers, the second pair's frequency is the root of the base's inverse.
                for (pair, frequency) in [1.0, 0.1].into_iter().enumerate() {
                    let angle = position as f64 * frequency / factors[pair];
                    let at = 2 * position + pair;
                    let error = |got: f32, want: f64| (f64::from(got) - 1.25 * want).abs();
                    assert!(error(cosines[at], angle.cos()) < 1e-6, "{positions}: {position}, {pair}");
                    assert!(error(sines[at], angle.sin()) < 1e-6, "{positions}: {position}, {pair}");
                }
            }
        }
    }
}
