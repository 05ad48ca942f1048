//! What programs run on.

use std::fmt::Debug;
use std::time::Duration;

use backend_api::{BackendResult, ComputeBackend};

/// A backend, and what can be done to it from outside. What a backend doesn't have is left out.
pub trait Target: Debug + Send + Sync {
    /// The backend, open.
    fn backend(&self) -> &dyn ComputeBackend;

    /// The backend's `init`.
    ///
    /// # Errors
    /// What [`ComputeBackend::init`] returns.
    fn init(&mut self) -> BackendResult<()>;

    /// Submits what has been recorded.
    ///
    /// # Errors
    /// What the backend returns.
    fn flush(&self) -> BackendResult<()> {
        Ok(())
    }

    /// How long calls wait; `None` for as long as usual.
    ///
    /// # Errors
    /// What the backend returns.
    fn set_timeout(&self, timeout: Option<Duration>) -> BackendResult<()> {
        _ = timeout;
        Ok(())
    }

    /// A handle to a buffer of zeros that the caller made.
    ///
    /// # Errors
    /// What the backend returns.
    fn import(&self, bytes: usize) -> BackendResult<u64> {
        _ = bytes;
        Err(self.backend().unsupported("import_buffer"))
    }

    /// Destroys the buffer behind a handle.
    ///
    /// # Errors
    /// What the backend returns.
    fn destroy_buffer(&self, ptr: u64) -> BackendResult<()> {
        _ = ptr;
        Err(self.backend().unsupported("export_buffer"))
    }

    /// Destroys the device; whether there is one.
    fn destroy_device(&self) -> bool {
        false
    }

    /// Bytes that the driver has for the device, by its own account.
    fn device_bytes(&self) -> usize {
        0
    }

    /// What else is to stay bounded, with its name.
    fn gauges(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
}

/// A backend to which nothing can be done from outside.
#[derive(Debug)]
pub struct Plain<B>(pub B);

impl<B: ComputeBackend> Target for Plain<B> {
    fn backend(&self) -> &dyn ComputeBackend {
        &self.0
    }

    fn init(&mut self) -> BackendResult<()> {
        self.0.init()
    }
}
