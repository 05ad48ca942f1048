//! Keeping what was found by measuring kernels.

use backend_api::{BackendResult, DeviceInfo};

use crate::WebGpuBackend;

impl WebGpuBackend {
    /// What `tune_matmul` has found, as lines of text, with the adapter and driver for which it is
    /// true.
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
        let lines = call.context.state.tuning.lines().into_iter();
        Ok(std::iter::once(header(&call.device().gpu.info)).chain(lines).map(|line| line + "\n").collect())
    }

    /// Uses what [`tuning`](Self::tuning) returned in another run. Takes nothing if it was found on another
    /// adapter or with another driver; the number of products that it knows of.
    ///
    /// # Errors
    /// [`NotInitialized`](backend_api::BackendError::NotInitialized).
    pub fn set_tuning(&self, text: &str) -> BackendResult<usize> {
        let call = self.context("set_tuning")?;
        let mut lines = text.lines();
        if lines.next() != Some(header(&call.device().gpu.info).as_str()) {
            return Ok(0);
        }
        Ok(lines.filter(|line| call.context.state.tuning.learn(line)).count())
    }
}

/// The first line of a tuning text, which names the adapter and driver.
fn header(DeviceInfo { name, api, driver, .. }: &DeviceInfo) -> String {
    format!("{name} | {api} | {driver}")
}
