//! Every way in which a provider's callback can fail.

use backend_api::BackendError;
use thiserror::Error;

/// The result of what ONNX Runtime asks for.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a callback failed; its text becomes the message of an `OrtStatus`.
#[derive(Debug, Error)]
pub(crate) enum Error {
    /// The backend refused a call or lost its device.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// ONNX Runtime refused a call.
    #[error("{call}: {message}")]
    Runtime {
        /// The function of its API.
        call: &'static str,
        /// What it said.
        message: String,
    },
    /// A node of the model failed while it ran.
    #[error("{node}: {source}")]
    Node {
        /// The node, as [`Node::label`](crate::model::Node::label) has it.
        node: String,
        /// What failed.
        source: Box<Self>,
    },
    /// A tensor's shape, an attribute or an index that the operator doesn't allow.
    #[error("{0}")]
    Invalid(String),
    /// An address that the allocator never handed out, or memory that nobody has written.
    #[error("device address {address:#x}: {what}")]
    Address {
        /// The address.
        address: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A node reads on the host what a captured graph computes.
    #[error("a captured node reads what the device computes")]
    Uncapturable,
    /// A callback panicked: a defect of this library.
    #[error("internal error: {0}")]
    Panic(String),
}

impl Error {
    /// An error of the model or of its inputs, in words.
    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }
}
