//! What runs outside of tests of interleavings.

use std::panic::{self, AssertUnwindSafe};
pub(crate) use std::sync::atomic;
#[cfg(not(target_family = "wasm"))]
pub(crate) use std::sync::mpsc;
pub(crate) use std::thread;
pub(crate) use std::thread_local;

pub(crate) use parking_lot::{Condvar, Mutex, ReentrantMutex, ReentrantMutexGuard, RwLock, RwLockReadGuard};
pub(crate) use web_time::Instant;

/// Lets wgpu make the callbacks of what has finished, or waits for that.
pub(crate) fn poll(device: &wgpu::Device, kind: wgpu::PollType) -> Result<wgpu::PollStatus, wgpu::PollError> {
    if cfg!(target_family = "wasm") {
        return device.poll(kind);
    }
    giving_up(|| device.poll(kind))
}

/// How wgpu-core 30.0.2 panics where a wait gives up at the moment in which another thread's poll finds its submission
/// finished (gfx-rs/wgpu#9958 mends it). It holds no lock then.
const GAVE_UP: &str = "If the queue is empty, the current submission index";

/// What a poll returns; a timeout where wgpu panics for [`GAVE_UP`].
fn giving_up<T>(poll: impl FnOnce() -> Result<T, wgpu::PollError>) -> Result<T, wgpu::PollError> {
    panic::catch_unwind(AssertUnwindSafe(poll)).unwrap_or_else(|payload| {
        let gave_up = payload.downcast_ref::<String>().is_some_and(|text| text.starts_with(GAVE_UP));
        if gave_up { Err(wgpu::PollError::Timeout) } else { panic::resume_unwind(payload) }
    })
}

/// Does what a callback of wgpu is for.
pub(crate) fn deliver(work: impl FnOnce()) {
    work();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_gives_up_is_a_timeout_and_other_panics_go_on() {
        assert!(matches!(giving_up(|| Ok(7)), Ok(7)));
        let gave_up = giving_up::<()>(|| panic!("{GAVE_UP} ({}) should be at least", 3));
        assert!(matches!(gave_up, Err(wgpu::PollError::Timeout)));
        let other = panic::catch_unwind(|| giving_up::<()>(|| panic!("a caller's waker")));
        assert!(other.is_err());
    }
}
