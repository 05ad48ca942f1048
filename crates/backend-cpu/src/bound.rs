//! The bound on the work of one call.

use backend_api::BackendResult;

/// Floating-point operations that a core makes in a second at least, a multiplication with its addition being
/// two.
const FLOPS_OF_A_CORE: f64 = 2e9;

/// Refuses work that would take more than [`MAX_SECONDS`](backend_api::support::MAX_SECONDS).
///
/// # Errors
/// [`Limit`](backend_api::BackendError::Limit).
pub(crate) fn require_end(op: &'static str, flops: f64) -> BackendResult<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    backend_api::support::require_bounded(op, flops / (FLOPS_OF_A_CORE * cores as f64))
}
