//! Every way a call can fail.

use thiserror::Error;

use crate::{Bound, DType, Diagnostic, Disagreement};

/// The result of every fallible call of this contract.
pub type BackendResult<T> = Result<T, BackendError>;

/// Why a call failed. A failed call has changed nothing.
///
/// Sizes are bytes unless a field's text says otherwise. `op` is the name of the called method, `arg` the
/// name of the argument as its signature or descriptor spells it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendError {
    /// The handle was never given out by this backend, or has been freed.
    #[error("{op}: `{arg}` ({ptr:#x}) is not a live handle of this backend")]
    InvalidHandle {
        /// The called method.
        op: &'static str,
        /// The argument that held the handle.
        arg: &'static str,
        /// The handle.
        ptr: u64,
    },
    /// The memory behind a handle ends before the last element that the call names.
    #[error("{op}: `{arg}` has {have} bytes, needs {need}")]
    BufferTooSmall {
        /// The called method.
        op: &'static str,
        /// The argument that is too small.
        arg: &'static str,
        /// Bytes behind the handle, or in the host slice.
        have: usize,
        /// Bytes from its start to the end of the last element named.
        need: usize,
    },
    /// A view starts where an element of this type can't.
    #[error("{op}: `{arg}` starts at byte {offset}, which is not a multiple of {align}")]
    Misaligned {
        /// The called method.
        op: &'static str,
        /// The misaligned argument.
        arg: &'static str,
        /// Byte offset of the view in its allocation.
        offset: usize,
        /// Alignment of the element type.
        align: usize,
    },
    /// A dimension, rank, stride or leading dimension doesn't fit the others.
    #[error("{op}: {what} is {got}, but {expected}")]
    Shape {
        /// The called method.
        op: &'static str,
        /// What doesn't fit.
        what: &'static str,
        /// What would fit.
        expected: Bound,
        /// The value given.
        got: usize,
    },
    /// An output shares memory with another operand in a way that the operation doesn't allow.
    #[error("{op}: `{a}` and `{b}` overlap")]
    Overlap {
        /// The called method.
        op: &'static str,
        /// The output.
        a: &'static str,
        /// The operand that it overlaps.
        b: &'static str,
    },
    /// A size or an offset doesn't fit in `usize`.
    #[error("{op}: {what} overflows")]
    Overflow {
        /// The called method.
        op: &'static str,
        /// What was being computed.
        what: &'static str,
    },
    /// The operation isn't defined for an operand of this element type.
    #[error("{op}: `{arg}` can't be {got}")]
    Dtype {
        /// The called method.
        op: &'static str,
        /// The argument with that type.
        arg: &'static str,
        /// The type given.
        got: DType,
    },
    /// The contract knows the operation, but this backend or its device can't do it.
    #[error("{op}: not supported here: needs {need}")]
    Unsupported {
        /// The called method.
        op: &'static str,
        /// What would be needed: a device feature, or an implementation in the named backend.
        need: String,
    },
    /// A size within the contract passes a limit of the device.
    #[error("{op}: {what} is {requested}, the device's limit is {max}")]
    Limit {
        /// The called method.
        op: &'static str,
        /// What is limited.
        what: &'static str,
        /// The value asked for.
        requested: usize,
        /// The largest value possible.
        max: usize,
    },
    /// The device has no memory left, or the budget is used up, which
    /// [`memory_stats`](crate::ComputeBackend::memory_stats) has in [`budget`](crate::MemoryStats::budget).
    #[error("out of memory: {requested} bytes requested with {in_use} in use")]
    OutOfMemory {
        /// Bytes asked for, or what they are rounded up to.
        requested: usize,
        /// Bytes in use by this backend at that moment.
        in_use: usize,
    },
    /// A kernel could not be built.
    #[error("kernel {name}{} failed to build", in_brackets(variant))]
    Kernel {
        /// The kernel's file in shaders/, without the extension; of a caller's own kernel, its name.
        name: String,
        /// Its specialisation, such as `f16`; of a caller's own kernel, the entry point if one was chosen.
        variant: String,
        /// What the compiler said.
        source: Diagnostic,
    },
    /// The driver refused work that passed every check, or failed while doing it. Reported by the call itself
    /// or, when the device tells late, by the next read or synchronize.
    #[error("{op}: the driver reported an error")]
    Driver {
        /// The call that reports it.
        op: &'static str,
        /// What the driver said.
        source: Diagnostic,
    },
    /// No adapter fits the request.
    #[error("no adapter found (tried: {})", tried.join(", "))]
    NoAdapter {
        /// What was tried, in order.
        tried: Vec<String>,
    },
    /// No backend of that name is registered.
    #[error("no backend is called {name:?}{} (known: {})", named_by(*variable), with_auto(known))]
    UnknownBackend {
        /// The name asked for.
        name: String,
        /// The environment variable that asked for it, if it was one.
        variable: Option<&'static str>,
        /// The registered names.
        known: Vec<String>,
    },
    /// [`init`](crate::ComputeBackend::init) has not been called, or has failed.
    #[error("{op}: the backend is not initialized")]
    NotInitialized {
        /// The called method.
        op: &'static str,
    },
    /// The device didn't finish in time. The work goes on; waiting again is allowed.
    #[error("{op}: the device did not finish within {waited:?}")]
    Timeout {
        /// The called method.
        op: &'static str,
        /// How long the call waited.
        waited: std::time::Duration,
    },
    /// The device is gone, and all memory on it. [`init`](crate::ComputeBackend::init) makes a new one.
    #[error("the device is lost: {reason}")]
    DeviceLost {
        /// What the driver said.
        reason: String,
    },
    /// Two backends that make the same calls have come to different results, beyond what rounding explains.
    /// Only from a backend that compares, such as `"verify:webgpu:0,cpu"` of the crate `backend-verify`.
    #[error("{op}: {found}")]
    Disagreement {
        /// The called method.
        op: &'static str,
        /// Who disagrees about what.
        found: Box<Disagreement>,
    },
    /// A call that can't be captured, on the backend that [`capture`](crate::ComputeBackend::capture) hands to
    /// what it records: of memory, a transfer between host and device, a wait, or of graphs.
    #[error("{op} can't be called within a capture")]
    Capturing {
        /// The called method.
        op: &'static str,
    },
    /// A blocking call where nothing may block: the main thread of a browser. Use the asynchronous form.
    #[error("{op} would block; use its asynchronous form")]
    WouldBlock {
        /// The called method.
        op: &'static str,
    },
}

/// A variant for a text, where there is one.
fn in_brackets(variant: &str) -> String {
    if variant.is_empty() { String::new() } else { format!(" ({variant})") }
}

/// The names that a registry takes: its own and those of its backends.
fn with_auto(known: &[String]) -> String {
    std::iter::once("auto").chain(known.iter().map(String::as_str)).collect::<Vec<_>>().join(", ")
}

/// Who asked for a backend, where it was the environment.
pub(crate) fn named_by(variable: Option<&str>) -> String {
    variable.map_or_else(String::new, |name| format!(", which the environment variable {name} asks for"))
}

macro_rules! kinds {
    ($($name:ident),+ $(,)?) => {
        /// A [`BackendError`]'s variant without its fields, for tables and statistics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $(#[doc = concat!("[`BackendError::", stringify!($name), "`]")] $name,)+
        }

        impl BackendError {
            /// The variant.
            #[must_use]
            pub const fn kind(&self) -> ErrorKind {
                match self {
                    $(Self::$name { .. } => ErrorKind::$name,)+
                }
            }
        }
    };
}

kinds!(
    InvalidHandle,
    BufferTooSmall,
    Misaligned,
    Shape,
    Overlap,
    Overflow,
    Dtype,
    Unsupported,
    Limit,
    OutOfMemory,
    Kernel,
    Driver,
    NoAdapter,
    UnknownBackend,
    NotInitialized,
    Timeout,
    DeviceLost,
    Disagreement,
    Capturing,
    WouldBlock,
);
