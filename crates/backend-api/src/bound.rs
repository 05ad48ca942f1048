//! The bound on the work of one call.

use crate::{BackendError, BackendResult};

/// The most seconds that a call may be estimated to take on its device.
pub const MAX_SECONDS: usize = 3600;

/// Refuses work that would occupy the device for more than [`MAX_SECONDS`]. `seconds` is an estimate from
/// shapes and the device's kind alone, so the answer is the same each time.
///
/// # Errors
/// [`Limit`](BackendError::Limit).
pub fn require_bounded(op: &'static str, seconds: f64) -> BackendResult<()> {
    if seconds <= MAX_SECONDS as f64 {
        return Ok(());
    }
    // The conversion saturates.
    let requested = seconds.ceil() as usize;
    Err(BackendError::Limit { op, what: "estimated time in seconds", requested, max: MAX_SECONDS })
}
