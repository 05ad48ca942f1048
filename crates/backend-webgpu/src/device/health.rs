//! Whether the device still works, and what it reported late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use backend_api::{BackendError, BackendResult, Diagnostic};
use parking_lot::Mutex;
use web_time::Instant;

use super::guarded_async;

/// The state that wgpu's callbacks write and every call reads.
#[derive(Debug)]
pub(crate) struct Health {
    lost: AtomicBool,
    reason: Mutex<String>,
    late: Mutex<Option<LateError>>,
    opened: Instant,
    /// When the device was last polled, in microseconds after `opened`.
    polled: AtomicU64,
}

/// wgpu tells of a loss only when it is polled, which costs as much as recording a dispatch. So a loss is noticed
/// after this time, or at the next call that waits.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The first error that no call was there to receive.
#[derive(Clone, Debug)]
enum LateError {
    OutOfMemory,
    Driver(Diagnostic),
}

impl Health {
    /// A state that nothing but its own users write.
    pub(crate) fn detached() -> Arc<Self> {
        Arc::new(Self {
            lost: AtomicBool::new(false),
            reason: Mutex::default(),
            late: Mutex::default(),
            opened: Instant::now(),
            polled: AtomicU64::new(0),
        })
    }

    /// A state that follows `device`: its lost callback and its uncaptured errors end up here.
    pub(crate) fn watch(device: &wgpu::Device) -> Arc<Self> {
        let health = Self::detached();
        let for_loss = Arc::clone(&health);
        device.set_device_lost_callback(move |reason, message| {
            for_loss.lose(&format!("{reason:?}: {message}"));
        });
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

    /// Polls the device if that was long ago, and tells whether it is lost.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), for good.
    pub(crate) fn refresh(&self, device: &wgpu::Device) -> BackendResult<()> {
        let now = self.opened.elapsed().as_micros() as u64;
        let last = self.polled.load(Ordering::Relaxed);
        if now.saturating_sub(last) >= POLL_INTERVAL.as_micros() as u64 {
            self.polled.store(now, Ordering::Relaxed);
            _ = device.poll(wgpu::PollType::Poll);
        }
        self.check()
    }

    /// To be asked after an error of the driver: on a lost device anything may fail before the loss is told, which
    /// happens when the device is polled with nothing left to do.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), if that was the cause.
    pub(crate) fn confirm(&self, device: &wgpu::Device) -> BackendResult<()> {
        let patience = Some(Duration::from_secs(1));
        _ = device.poll(wgpu::PollType::Wait { submission_index: None, timeout: patience });
        self.check()
    }

    /// [`check`](Self::check) after the device's answer to work of before. A browser answers on a lost device too, and
    /// tells of the loss apart from it; what is asked for now is answered after that.
    pub(crate) async fn settle(&self, device: &wgpu::Device) -> BackendResult<()> {
        if cfg!(target_family = "wasm") {
            _ = guarded_async(device, || ()).await;
        }
        self.check()
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
