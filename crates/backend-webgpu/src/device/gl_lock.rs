//! One call at a time where the interface can't take more.

use std::time::Duration;

use backend_api::{BackendError, BackendResult, DeviceInfo};

use crate::sync::{ReentrantMutex, ReentrantMutexGuard};

/// Lets one thread at a time through to an OpenGL device, and any number to others.
///
/// An OpenGL context belongs to one thread at a time; wgpu hands it over, but panics in a thread that has to
/// wait for it for some seconds, as a long compilation in another may well take.
#[derive(Debug)]
pub(crate) struct GlLock(Option<ReentrantMutex<()>>);

/// Holds the lock until it is dropped. Its thread may lock again meanwhile.
#[derive(Debug)]
pub(crate) struct GlGuard<'a>(
    #[expect(dead_code, reason = "held for its drop")] Option<ReentrantMutexGuard<'a, ()>>,
);

impl GlLock {
    pub(crate) fn new(info: &DeviceInfo) -> Self {
        Self((info.api == "Gl").then(ReentrantMutex::default))
    }

    /// Whether threads have to wait for each other.
    pub(crate) fn is_needed(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for the lock for as long as it takes.
    pub(crate) fn lock(&self) -> GlGuard<'_> {
        GlGuard(self.0.as_ref().map(ReentrantMutex::lock))
    }

    /// Waits for the lock no longer than a call may wait.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout).
    pub(crate) fn lock_within(&self, op: &'static str, timeout: Duration) -> BackendResult<GlGuard<'_>> {
        let Some(mutex) = &self.0 else { return Ok(GlGuard(None)) };
        let guard = mutex.try_lock().or_else(|| mutex.try_lock_for(timeout));
        guard.map(|guard| GlGuard(Some(guard))).ok_or(BackendError::Timeout { op, waited: timeout })
    }
}
