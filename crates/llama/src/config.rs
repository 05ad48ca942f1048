//! What a model's metadata says of its architecture.
//!
//! What can be told from the tensors alone isn't here: biases, fused projections and a separate output matrix are used
//! where the file has them, and so are norms of queries and keys and norms after a block, which some architectures
//! have to have.

mod architecture;
mod experts;
mod keys;
mod rope;
mod scales;
mod temperature;

pub use architecture::Architecture;
pub use experts::ExpertConfig;
use keys::Keys;
pub(crate) use rope::FACTORS;
pub use rope::{RopeConfig, RopeScaling};
use scales::Scales;
pub use temperature::AttentionTemperature;

use crate::gguf::{Gguf, Value};
use crate::{Error, Result};

/// A model's sizes and the constants of its formulas.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Config {
    /// The family.
    pub architecture: Architecture,
    /// Tokens that the model was trained to see at once.
    pub context_length: usize,
    /// Numbers in the vector of a token.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Numbers in the vector of a head.
    pub head_dim: usize,
    /// Numbers inside a feed-forward network.
    pub intermediate: usize,
    /// The experts of layers that have some.
    pub experts: Option<ExpertConfig>,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Added to the mean square in norms, and to the variance in layer norms.
    pub norm_eps: f64,
    /// Factor of the scores of attention.
    pub attention_scale: f64,
    /// Growth of the scores of attention with positions, if they grow.
    pub attention_temperature: Option<AttentionTemperature>,
    /// Bound of the scores of attention; 0 for none.
    pub attention_softcap: f64,
    /// Bound of the logits; 0 for none.
    pub logit_softcap: f64,
    /// Factor of the embeddings.
    pub embedding_scale: f64,
    /// Factor of what a block adds to the residual stream.
    pub residual_scale: f64,
    /// Divides the logits.
    pub logit_divisor: f64,
    /// How many keys layers with a window see.
    pub window: Option<usize>,
    /// Rotations of layers that see all keys, and of those with a window.
    pub rope: RopeConfig,
}

impl Config {
    /// Reads the metadata of a file, and the size of the vocabulary from its embeddings.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::Value`], [`Error::MissingTensor`], [`Error::Tensor`].
    pub fn from_gguf(file: &Gguf<'_>) -> Result<Self> {
        let metadata = file.metadata();
        let architecture = Architecture::of(metadata).ok_or_else(|| {
            let key = "general.architecture";
            let name = metadata.get(key).and_then(Value::text).unwrap_or_default();
            Error::value(key, Architecture::ALL.map(Architecture::name).join(", "), name)
        })?;
        if let Some(parts) = metadata.get("split.count").and_then(Value::unsigned).filter(|&parts| parts > 1)
        {
            let expected = "1: join the parts first, as llama-gguf-split --merge does";
            return Err(Error::value("split.count", expected, parts));
        }
        let keys = Keys { metadata, prefix: architecture.name() };

        let hidden = keys.size("embedding_length")?;
        let heads = keys.size("attention.head_count")?;
        let kv_heads = keys.size_or("attention.head_count_kv", heads)?;
        keys.require(
            "attention.head_count_kv",
            heads.is_multiple_of(kv_heads),
            "a divisor of the heads",
            kv_heads,
        )?;
        let head_dim = keys.size_or("attention.key_length", hidden / heads)?;
        let value_dim = keys.size_or("attention.value_length", head_dim)?;
        keys.require("attention.value_length", value_dim == head_dim, head_dim, value_dim)?;
        keys.require("attention.key_length", head_dim > 0, "1 or more", head_dim)?;
        let is_gpt_oss = architecture == Architecture::GptOss;
        let inside = if is_gpt_oss { "expert_feed_forward_length" } else { "feed_forward_length" };
        let intermediate = keys.size(inside)?;
        let layers = keys.size("block_count")?;
        let causal = keys.flag("attention.causal")?.unwrap_or(true);
        keys.require("attention.causal", causal, true, causal)?;
        let is_gemma = architecture.is_gemma();
        // The largest of either family scales by hidden / heads, all others by the length of a head.
        let large = matches!((architecture, layers), (Architecture::Gemma2, 46) | (Architecture::Gemma3, 62));
        let scaled_by = if large { hidden as f64 / heads as f64 } else { head_dim as f64 };
        let scales = Scales {
            embedding: if is_gemma { (hidden as f64).sqrt() } else { 1.0 },
            attention: scaled_by.sqrt().recip(),
            residual: 1.0,
            logit_divisor: 1.0,
        };
        let scales = Scales::new(&keys, architecture, scales)?;
        let context_length = keys.size("context_length")?;
        let has_layer_norms = architecture.has_layer_norms();
        let key =
            if has_layer_norms { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
        let norm_eps = keys.number(key)?;
        keys.require(key, norm_eps >= 0.0, "0 or more", norm_eps)?;
        let window = window(&keys, architecture, layers)?;
        let softcap = |key, default| keys.number_or(key, default);
        let gemma2 = architecture == Architecture::Gemma2;
        Ok(Self {
            architecture,
            context_length,
            hidden,
            layers,
            heads,
            kv_heads,
            head_dim,
            intermediate,
            experts: ExpertConfig::new(&keys, architecture, intermediate)?,
            vocabulary: vocabulary(file, hidden)?,
            norm_eps,
            attention_scale: scales.attention,
            attention_temperature: AttentionTemperature::new(&keys, architecture, context_length)?,
            attention_softcap: softcap("attn_logit_softcapping", if gemma2 { 50.0 } else { 0.0 })?,
            logit_softcap: softcap("final_logit_softcapping", if gemma2 { 30.0 } else { 0.0 })?,
            embedding_scale: scales.embedding,
            residual_scale: scales.residual,
            logit_divisor: scales.logit_divisor,
            window,
            rope: RopeConfig::new(&keys, file, architecture, (head_dim, window.is_some()))?,
        })
    }

    /// Numbers of all query heads of a token.
    #[must_use]
    pub const fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Numbers of all keys of a token, and of all values.
    #[must_use]
    pub const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// How many keys layer `index` sees, if not all.
    #[must_use]
    pub fn window_of(&self, index: usize) -> Option<usize> {
        self.window.filter(|_| self.architecture.has_window(index))
    }
}

/// The keys that layers with a window see. Early files of Gemma 2 don't say so; those of Gemma 3, whose layers
/// with a window also rotate otherwise, and of gpt-oss have to.
fn window(keys: &Keys<'_>, architecture: Architecture, layers: usize) -> Result<Option<usize>> {
    let key = "attention.sliding_window";
    let window = match architecture {
        Architecture::Gemma3 | Architecture::GptOss | Architecture::Cohere2 => Some(keys.size(key)?),
        Architecture::Gemma2 => Some(keys.size_or(key, 4096)?),
        // The larger model has one whether its file says so or not.
        Architecture::Exaone4 if layers == 64 => Some(keys.size_or(key, 4096)?),
        _ => keys.optional_size(key)?.filter(|&window| window > 0),
    };
    // Of how many layers the last one sees all keys, or which layers have a window.
    let key = "attention.sliding_window_pattern";
    if let Some(flags) = keys.flags(key)? {
        let has_window = |index| window.is_some() && architecture.has_window(index);
        let fits = flags.len() == layers && (0..).zip(&flags).all(|(index, &flag)| flag == has_window(index));
        let expected = format!("that of {} for {layers} layers", architecture.name());
        keys.require(key, fits, expected, format!("{flags:?}"))?;
    } else if let Some(pattern) = keys.optional_size(key)? {
        let known = architecture.window_pattern();
        keys.require(key, window.is_none() || pattern == known, known, pattern)?;
    }
    Ok(window)
}

/// Rows of the embeddings, which must be of `hidden` numbers.
fn vocabulary(file: &Gguf<'_>, hidden: usize) -> Result<usize> {
    let name = "token_embd.weight".to_owned();
    match file.tensor(&name).map(|tensor| tensor.shape.as_slice()) {
        None => Err(Error::MissingTensor { name }),
        Some(&[rows, columns]) if columns == hidden && rows > 0 => Ok(rows),
        Some(shape) => {
            Err(Error::Tensor { name, expected: format!("[1 or more, {hidden}]"), got: format!("{shape:?}") })
        }
    }
}
