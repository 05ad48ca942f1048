//! The names by which a test or a measurement asks for a kernel.

use std::fmt::Display;

use backend_api::BackendError;

/// The names of all kernels of an operation.
pub(in crate::ops) fn all(kernels: impl Iterator<Item = impl Display>) -> Vec<String> {
    kernels.map(|kernel| kernel.to_string()).collect()
}

/// The kernel of a name.
pub(in crate::ops) fn find<K: Display>(mut kernels: impl Iterator<Item = K>, name: &str) -> Option<K> {
    kernels.find(|known| known.to_string() == name)
}

/// The error for a name that no kernel has.
pub(in crate::ops) fn unknown(
    op: &'static str,
    name: &str,
    kernels: impl Iterator<Item = impl Display>,
) -> BackendError {
    let need = format!("one of the kernels {}, not {name:?}", all(kernels).join(", "));
    BackendError::Unsupported { op, need }
}
