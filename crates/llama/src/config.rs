//! What a model's metadata says of its architecture.
//!
//! What can be told from the tensors alone isn't here: biases, fused projections and a separate output matrix are used
//! where the file has them, and so are norms of queries and keys and norms after a block, which some architectures
//! have to have.

mod experts;
mod keys;
mod rope;
mod scales;
mod temperature;

pub use experts::ExpertConfig;
use keys::Keys;
pub(crate) use rope::FACTORS;
pub use rope::{RopeConfig, RopeScaling};
use scales::Scales;
pub use temperature::AttentionTemperature;

use crate::gguf::{Gguf, Metadata, Value};
use crate::{Error, Result};

/// The families of models that this runtime knows, by GGUF's `general.architecture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama 1 to 3.3, Mistral and Mixtral, which GGUF calls llama as well.
    Llama,
    /// Qwen 2 and 2.5: biases of queries, keys and values.
    Qwen2,
    /// Qwen 3: norms of queries and keys.
    Qwen3,
    /// Qwen 1.5 and 2 with experts, one of which all tokens use.
    Qwen2Moe,
    /// Qwen 3 with experts.
    Qwen3Moe,
    /// Gemma 2: softcaps, every other layer with a window, norms after each block.
    Gemma2,
    /// Gemma 3: five of six layers with a window, norms of queries and keys and after each block.
    Gemma3,
    /// Phi 3 and 3.5: fused projections.
    Phi3,
    /// gpt-oss: experts with biases and a clamped gate, attention sinks, every other layer with a window.
    GptOss,
    /// Granite 3 and dense models of Granite 4: factors of embeddings, scores, blocks and logits.
    Granite,
    /// SmolLM 3: no rotation in every fourth layer.
    SmolLm3,
    /// OLMo 2 and 3: norms after each block and not before, and of whole rows of queries and of keys; in OLMo 3 three of four
    /// layers with a window.
    Olmo2,
    /// Ministral 3: attention with a temperature beyond the context before YaRN.
    Mistral3,
    /// ERNIE 4.5 without experts.
    Ernie45,
    /// Seed-OSS: biases of queries, keys and values.
    SeedOss,
    /// The first Gemma.
    Gemma,
}

impl Architecture {
    /// GGUF's name, which is the prefix of the architecture's keys too.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Qwen2Moe => "qwen2moe",
            Self::Qwen3Moe => "qwen3moe",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3",
            Self::Phi3 => "phi3",
            Self::GptOss => "gpt-oss",
            Self::Granite => "granite",
            Self::SmolLm3 => "smollm3",
            Self::Olmo2 => "olmo2",
            Self::Mistral3 => "mistral3",
            Self::Ernie45 => "ernie4_5",
            Self::SeedOss => "seed_oss",
            Self::Gemma => "gemma",
        }
    }

    const ALL: [Self; 16] = [
        Self::Llama,
        Self::Qwen2,
        Self::Qwen3,
        Self::Qwen2Moe,
        Self::Qwen3Moe,
        Self::Gemma2,
        Self::Gemma3,
        Self::Phi3,
        Self::GptOss,
        Self::Granite,
        Self::SmolLm3,
        Self::Olmo2,
        Self::Mistral3,
        Self::Ernie45,
        Self::SeedOss,
        Self::Gemma,
    ];

    /// What a file says that it is, if that is known.
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        let name = metadata.get("general.architecture").and_then(Value::text)?;
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Whether each layer normalises what attention and its network read.
    pub(crate) const fn has_pre_norms(self) -> bool {
        !matches!(self, Self::Olmo2)
    }

    /// Whether each layer normalises what attention and its network add.
    pub(crate) const fn has_post_norms(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3 | Self::Olmo2)
    }

    /// The norm between attention and its network, which some call one of attention's output.
    pub(crate) const fn ffn_norm(self) -> &'static str {
        match self {
            Self::GptOss | Self::SeedOss => "post_attention_norm",
            _ => "ffn_norm",
        }
    }

    /// Whether each layer normalises queries and keys.
    pub(crate) const fn has_query_norms(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Qwen3Moe | Self::Gemma3 | Self::Olmo2)
    }

    /// Whether norms of queries and keys, if a layer has some, are those of each head rather than of all heads of a token.
    pub(crate) const fn normalises_heads(self) -> bool {
        !matches!(self, Self::Olmo2)
    }

    /// Whether the weights of the architecture's files are permuted, so that the elements of a rotated pair are neighbours.
    const fn has_neighbouring_pairs(self) -> bool {
        matches!(self, Self::Llama | Self::Granite | Self::SmolLm3 | Self::Mistral3 | Self::Ernie45)
    }

    pub(crate) const fn is_gemma(self) -> bool {
        matches!(self, Self::Gemma | Self::Gemma2 | Self::Gemma3)
    }

    /// Of how many layers in a row the last one sees all keys; 1 where windows, if any, are everywhere.
    const fn window_pattern(self) -> usize {
        match self {
            Self::Gemma2 | Self::GptOss => 2,
            Self::Olmo2 => 4,
            Self::Gemma3 => 6,
            _ => 1,
        }
    }

    /// Whether layer `index` has a window, if any has.
    const fn has_window(self, index: usize) -> bool {
        let pattern = self.window_pattern();
        pattern == 1 || !(index + 1).is_multiple_of(pattern)
    }
}

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
    /// Added to the mean square in norms.
    pub rms_eps: f64,
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
            rms_eps: keys.number("attention.layer_norm_rms_epsilon")?,
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
        Architecture::Gemma3 | Architecture::GptOss => Some(keys.size(key)?),
        Architecture::Gemma2 => Some(keys.size_or(key, 4096)?),
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
