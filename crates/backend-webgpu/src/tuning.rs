//! Keeping what was found by measuring kernels.

use backend_api::BackendResult;

use crate::WebGpuBackend;
use crate::ops::{Conflict, Tuning};

impl WebGpuBackend {
    /// What `tune_matmul` has found, and compute units that [`set_tuning`](Self::set_tuning) was given, as lines
    /// of text, with the adapter and driver for which it is true. A folder for caches keeps it without being asked: [`with_cache_dir`](Self::with_cache_dir).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let backend = backend_webgpu::WebGpuBackend::open()?;
    /// if let Ok(text) = std::fs::read_to_string("tuning.txt") {
    ///     backend.set_tuning(&text)?;
    /// }
    /// // … tune_matmul, and at the end:
    /// std::fs::write("tuning.txt", backend.tuning()?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`NotInitialized`](backend_api::BackendError::NotInitialized).
    pub fn tuning(&self) -> BackendResult<String> {
        let call = self.context("tuning")?;
        Ok(Tuning::of(&call.context.state).text(&call.device().gpu.info))
    }

    /// Uses what [`tuning`](Self::tuning) returned in another run. Takes nothing if it was found on another
    /// adapter or with another driver; the number of products that it knows of.
    ///
    /// A line `compute_units = 40`, which may be written by hand, is how many the device has. It is used where the
    /// driver doesn't tell: [`device_specs`](Self::device_specs) says so.
    ///
    /// # Errors
    /// [`NotInitialized`](backend_api::BackendError::NotInitialized).
    pub fn set_tuning(&self, text: &str) -> BackendResult<usize> {
        let call = self.context("set_tuning")?;
        Ok(Tuning::of(&call.context.state).learn_text(&call.device().gpu.info, text, Conflict::Replace))
    }
}
