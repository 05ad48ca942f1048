//! Whether the device still works, and what it reported late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backend_api::{BackendError, BackendResult, Diagnostic};
use parking_lot::Mutex;

/// The state that wgpu's callbacks write and every call reads.
#[derive(Debug, Default)]
pub(crate) struct Health {
    lost: AtomicBool,
    reason: Mutex<String>,
    late: Mutex<Option<LateError>>,
}

/// The first error that no call was there to receive.
#[derive(Clone, Debug)]
enum LateError {
    OutOfMemory,
    Driver(Diagnostic),
}

impl Health {
    /// A state that follows `device`: its lost callback and its uncaptured errors end up here.
    pub(crate) fn watch(device: &wgpu::Device) -> Arc<Self> {
        let health = Arc::new(Self::default());
        let for_loss = Arc::clone(&health);
        device.set_device_lost_callback(move |reason, message| for_loss.lose(&format!("{reason:?}: {message}")));
        let for_errors = Arc::clone(&health);
        device.on_uncaptured_error(Arc::new(move |error| for_errors.report(error)));
        health
    }

    /// Marks the device as lost. The first reason stays.
    pub(crate) fn lose(&self, reason: &str) {
        let mut known = self.reason.lock();
        if !self.lost.swap(true, Ordering::Release) {
            tracing::error!(reason, "the device is lost");
            reason.clone_into(&mut known);
        }
    }

    /// Keeps an error for the next read or synchronize. The first one stays: the others follow from it.
    pub(crate) fn report(&self, error: wgpu::Error) {
        tracing::error!(%error, "the driver reported an error that no call was waiting for");
        let error = match error {
            wgpu::Error::OutOfMemory { .. } => LateError::OutOfMemory,
            other => LateError::Driver(Diagnostic(other.to_string())),
        };
        self.late.lock().get_or_insert(error);
    }

    /// Takes the late error, if there is one: a read must not return what a failed operation should have written.
    pub(crate) fn take_late(&self, op: &'static str, in_use: usize) -> BackendResult<()> {
        match self.late.lock().take() {
            None => Ok(()),
            Some(LateError::OutOfMemory) => Err(BackendError::OutOfMemory { requested: 0, in_use }),
            Some(LateError::Driver(source)) => Err(BackendError::Driver { op, source }),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), for good.
    pub(crate) fn check(&self) -> BackendResult<()> {
        if self.is_lost() {
            return Err(BackendError::DeviceLost { reason: self.reason.lock().clone() });
        }
        Ok(())
    }
}
