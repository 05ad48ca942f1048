//! The model's sizes, from its `config.json`.

use serde::Deserialize;

use crate::{Error, MAX_TOKENS, Result};

/// The fields of a BERT model's `config.json` that the forward pass needs, by their names there.
#[derive(Clone, Debug, Deserialize)]
#[non_exhaustive]
pub struct Config {
    /// Numbers in the vector of a token.
    pub hidden_size: usize,
    /// Numbers inside a feed-forward network.
    pub intermediate_size: usize,
    /// Attention heads; divides `hidden_size`.
    pub num_attention_heads: usize,
    /// Encoder layers.
    pub num_hidden_layers: usize,
    /// Rows of the table of word embeddings.
    pub vocab_size: usize,
    /// Rows of the table of position embeddings: the longest sequence.
    pub max_position_embeddings: usize,
    /// Rows of the table of token types.
    pub type_vocab_size: usize,
    /// Added to the variance in layer normalisation.
    pub layer_norm_eps: f64,
    hidden_act: String,
    model_type: String,
}

impl Config {
    /// Parses `config.json` and checks that it describes a model that this runtime runs.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::UnsupportedModel`].
    pub fn from_json(json: &[u8]) -> Result<Self> {
        let config: Self = serde_json::from_slice(json).map_err(Error::Config)?;
        require("model_type", config.model_type == "bert", "bert", &config.model_type)?;
        require("hidden_act", config.hidden_act == "gelu", "gelu", &config.hidden_act)?;
        require("hidden_size", config.hidden_size > 0, "1 or more", config.hidden_size)?;
        require(
            "num_attention_heads",
            config.hidden_size.checked_rem(config.num_attention_heads) == Some(0),
            format!("a divisor of {}", config.hidden_size),
            config.num_attention_heads,
        )?;
        require(
            "max_position_embeddings",
            config.max_position_embeddings >= MAX_TOKENS,
            format!("{MAX_TOKENS} or more"),
            config.max_position_embeddings,
        )?;
        require("type_vocab_size", config.type_vocab_size > 0, "1 or more", config.type_vocab_size)?;
        Ok(config)
    }
}

fn require(what: &'static str, holds: bool, expected: impl ToString, got: impl ToString) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::UnsupportedModel { what, expected: expected.to_string(), got: got.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINILM: &str = r#"{
        "hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12, "num_hidden_layers": 6,
        "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "hidden_act": "gelu", "model_type": "bert", "position_embedding_type": "absolute"
    }"#;

    #[test]
    fn the_models_own_configuration_is_accepted() {
        assert_eq!(Config::from_json(MINILM.as_bytes()).unwrap().hidden_size, 384);
    }

    #[test]
    fn other_models_are_refused_by_field() {
        let changes = [
            ("\"gelu\"", "\"relu\"", "hidden_act"),
            ("\"bert\"", "\"gpt2\"", "model_type"),
            ("384", "0", "hidden_size"),
            ("_heads\": 12", "_heads\": 7", "num_attention_heads"),
            ("_heads\": 12", "_heads\": 0", "num_attention_heads"),
            ("512", "128", "max_position_embeddings"),
        ];
        for (from, to, field) in changes {
            match Config::from_json(MINILM.replace(from, to).as_bytes()) {
                Err(Error::UnsupportedModel { what, .. }) => assert_eq!(what, field),
                other => panic!("{field}: {other:?}"),
            }
        }
    }
}
