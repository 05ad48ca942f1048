//! Every way that loading a model or embedding a text can fail.

use std::path::PathBuf;

use backend_api::BackendError;
use thiserror::Error;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why loading or embedding failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// No directory holds the model.
    #[error(
        "no model in {}: fetch it with `cargo xtask model`, or name another directory with {}",
        dir.display(),
        crate::MODEL_VARIABLE
    )]
    NoModel {
        /// The directory that was looked at last.
        dir: PathBuf,
    },
    /// A file of the model can't be read.
    #[error("can't read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// `config.json` can't be parsed.
    #[error("the model's configuration can't be parsed")]
    Config(#[source] serde_json::Error),
    /// `config.json` describes a model that this runtime doesn't run.
    #[error("the model's {what} is {got}, expected {expected}")]
    UnsupportedModel {
        /// The field of `config.json`.
        what: &'static str,
        /// What this runtime can do.
        expected: String,
        /// What the field says.
        got: String,
    },
    /// The checkpoint isn't a safetensors file, or lacks a tensor.
    #[error("the checkpoint can't be read{}", tensor.as_ref().map(|name| format!(" at {name}")).unwrap_or_default())]
    Checkpoint {
        /// The tensor that was wanted, if it came that far.
        tensor: Option<String>,
        /// What the parser said.
        source: safetensors::SafeTensorError,
    },
    /// A tensor of the checkpoint doesn't have the shape or type that the configuration asks for.
    #[error("{tensor} is {got}, expected {expected}")]
    Tensor {
        /// Its name in the checkpoint.
        tensor: String,
        /// Element type and shape asked for.
        expected: String,
        /// Element type and shape found.
        got: String,
    },
    /// `tokenizer.json` can't be parsed, or describes a tokenizer of another kind than BERT's.
    #[error("the tokenizer can't be read")]
    Tokenizer(#[source] serde_json::Error),
    /// A sequence has more tokens than the model has positions.
    #[error("a sequence of {tokens} tokens is longer than the model's {max}")]
    TooLong {
        /// Tokens in the sequence.
        tokens: usize,
        /// Positions of the model.
        max: usize,
    },
    /// A captured pass was given a batch of another shape.
    #[error(
        "a batch of {} sequences of {} tokens, the captured pass takes {} of {}",
        got[0], got[1], expected[0], expected[1]
    )]
    Batch {
        /// Sequences, and tokens in each, of the captured pass.
        expected: [usize; 2],
        /// Sequences, and tokens in each, of the batch.
        got: [usize; 2],
    },
    /// The backend refused a call.
    #[error(transparent)]
    Backend(#[from] BackendError),
}
