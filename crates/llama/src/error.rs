//! Every way that loading or running a model can fail.

use backend_api::kv::KvFormat;
use backend_api::{BackendError, DType};
use thiserror::Error;

use crate::gguf::GgufError;

/// The result of every fallible call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why loading or running a model failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The file isn't GGUF, or is damaged.
    #[error("the file can't be read: {0}")]
    Gguf(#[from] GgufError),
    /// A piece of the file can't be had.
    #[error("the file can't be read: {0}")]
    Read(std::io::Error),
    /// The metadata lacks a key.
    #[error("the file has no {key}")]
    MissingKey {
        /// Its name.
        key: String,
    },
    /// A key of the metadata has a value that makes no sense, or that this runtime doesn't run.
    #[error("{key} is {got}, expected {expected}")]
    Value {
        /// Its name.
        key: String,
        /// What this runtime can do.
        expected: String,
        /// What the file says.
        got: String,
    },
    /// A tensor that the architecture asks for isn't there.
    #[error("the file has no tensor {name}")]
    MissingTensor {
        /// Its name.
        name: String,
    },
    /// A tensor has another shape or type than the architecture asks for.
    #[error("the tensor {name} is {got}, expected {expected}")]
    Tensor {
        /// Its name.
        name: String,
        /// Shape or types that would do.
        expected: String,
        /// What it is.
        got: String,
    },
    /// The vocabulary or its merges are no tokenizer.
    #[error("the tokenizer can't be made: {0}")]
    Tokenizer(String),
    /// The chat template can't be parsed, or refuses the messages.
    #[error("the chat template fails: {0:#}")]
    Template(minijinja::Error),
    /// A sequence grew beyond its cache.
    #[error("a sequence of {tokens} tokens is longer than the context of {capacity}")]
    TooLong {
        /// Tokens in the sequence.
        tokens: usize,
        /// Tokens that the cache holds.
        capacity: usize,
    },
    /// A message of a chat for which there is no room, whatever else is forgotten.
    #[error(
        "the message doesn't fit: with what stands before it, it takes {tokens} tokens, and the context has {context}, of which {answer} \
         are kept for the answer"
    )]
    MessageTooLong {
        /// Tokens of the message, of what the chat begins with, and of the template.
        tokens: usize,
        /// Tokens that the cache holds.
        context: usize,
        /// Of these, what is kept for the answer.
        answer: usize,
    },
    /// A step asks for what it can't have.
    #[error("{what} is {got}, expected {expected}")]
    Argument {
        /// Which argument.
        what: &'static str,
        /// What would do.
        expected: String,
        /// What was given.
        got: usize,
    },
    /// Keys and values can't be cached in this type beside activations of that type.
    #[error(
        "a cache of {cache} needs activations of {cache}, and these are {activations}; caches of f16 and q8_0 do without"
    )]
    CacheType {
        /// The format of the cache.
        cache: KvFormat,
        /// The type of the activations.
        activations: DType,
    },
    /// A model's logits are NaN or infinite.
    #[error(
        "the logits aren't finite numbers: the weights are damaged, or activations overflow; those of f16 don't with --precision f32 \
         (`Precision::F32`)"
    )]
    NotFinite,
    /// The backend refused a call.
    #[error(transparent)]
    Backend(#[from] BackendError),
}

impl Error {
    pub(crate) fn value(key: impl Into<String>, expected: impl ToString, got: impl ToString) -> Self {
        Self::Value { key: key.into(), expected: expected.to_string(), got: got.to_string() }
    }
}
