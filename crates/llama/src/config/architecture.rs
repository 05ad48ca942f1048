//! Families of models, and in what their layers differ.

use crate::gguf::{Metadata, Value};

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
    /// Granite 3 and 4 with experts, beside which a network may be that all tokens use.
    GraniteMoe,
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
    /// GLM 4 of April 2025: norms before and after each block, a rotation of a part of each head.
    Glm4,
    /// EXAONE 4: norms after each block and not before, and of queries and keys; in the larger model three of four layers with
    /// a window, and no rotation in the others.
    Exaone4,
    /// Dense models of Hunyuan: norms of queries and keys that are rotated already.
    HunyuanDense,
    /// Command R and Aya 23: layer norms, one of which attention and its network both read.
    CommandR,
    /// Command R7B and A: as Command R, with a window and rotations in three of four layers and neither in the others.
    Cohere2,
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
            Self::GraniteMoe => "granitemoe",
            Self::SmolLm3 => "smollm3",
            Self::Olmo2 => "olmo2",
            Self::Mistral3 => "mistral3",
            Self::Ernie45 => "ernie4_5",
            Self::SeedOss => "seed_oss",
            Self::Gemma => "gemma",
            Self::Glm4 => "glm4",
            Self::Exaone4 => "exaone4",
            Self::HunyuanDense => "hunyuan-dense",
            Self::CommandR => "command-r",
            Self::Cohere2 => "cohere2",
        }
    }

    pub(super) const ALL: [Self; 22] = [
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
        Self::GraniteMoe,
        Self::SmolLm3,
        Self::Olmo2,
        Self::Mistral3,
        Self::Ernie45,
        Self::SeedOss,
        Self::Gemma,
        Self::Glm4,
        Self::Exaone4,
        Self::HunyuanDense,
        Self::CommandR,
        Self::Cohere2,
    ];

    /// What a file says that it is, if that is known.
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        let name = metadata.get("general.architecture").and_then(Value::text)?;
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Whether each layer normalises what attention and its network read.
    pub(crate) const fn has_pre_norms(self) -> bool {
        !matches!(self, Self::Olmo2 | Self::Exaone4)
    }

    /// Whether each layer normalises what attention and its network add.
    pub(crate) const fn has_post_norms(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3 | Self::Olmo2 | Self::Glm4 | Self::Exaone4)
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
        matches!(
            self,
            Self::Qwen3 | Self::Qwen3Moe | Self::Gemma3 | Self::Olmo2 | Self::Exaone4 | Self::HunyuanDense
        )
    }

    /// Whether queries and keys are normalised after they are rotated rather than before.
    pub(crate) const fn normalises_rotated(self) -> bool {
        matches!(self, Self::HunyuanDense)
    }

    /// Whether norms of queries and keys, if a layer has some, are those of each head rather than of all heads of a token.
    pub(crate) const fn normalises_heads(self) -> bool {
        !matches!(self, Self::Olmo2)
    }

    /// Whether the weights of the architecture's files are permuted, so that the elements of a rotated pair are neighbours.
    pub(super) const fn has_neighbouring_pairs(self) -> bool {
        self.is_granite()
            || self.is_cohere()
            || matches!(self, Self::Llama | Self::SmolLm3 | Self::Mistral3 | Self::Ernie45 | Self::Glm4)
    }

    pub(super) const fn is_granite(self) -> bool {
        matches!(self, Self::Granite | Self::GraniteMoe)
    }

    pub(super) const fn is_cohere(self) -> bool {
        matches!(self, Self::CommandR | Self::Cohere2)
    }

    /// Whether norms subtract the mean: layer norms without a bias.
    pub(crate) const fn has_layer_norms(self) -> bool {
        self.is_cohere()
    }

    /// Whether a layer's network reads what attention reads, and not what it adds.
    pub(crate) const fn has_parallel_blocks(self) -> bool {
        self.is_cohere()
    }

    pub(crate) const fn is_gemma(self) -> bool {
        matches!(self, Self::Gemma | Self::Gemma2 | Self::Gemma3)
    }

    /// Of how many layers in a row the last one sees all keys; 1 where windows, if any, are everywhere.
    pub(super) const fn window_pattern(self) -> usize {
        match self {
            Self::Gemma2 | Self::GptOss => 2,
            Self::Olmo2 | Self::Exaone4 | Self::Cohere2 => 4,
            Self::Gemma3 => 6,
            _ => 1,
        }
    }

    /// Whether layer `index` has a window, if any has.
    pub(super) const fn has_window(self, index: usize) -> bool {
        let pattern = self.window_pattern();
        pattern == 1 || !(index + 1).is_multiple_of(pattern)
    }
}
