//! Measuring kernels on the device, and keeping what was found.

use std::cell::Cell;
use std::time::{Duration, Instant};

use backend_api::desc::MatmulDesc;
use backend_api::{BackendResult, ComputeBackend};

use crate::{WebGpuBackend, ops};

/// Runs of a kernel that are timed; the fastest counts.
const RUNS: usize = 5;

impl WebGpuBackend {
    /// Measures every kernel that can make such a product, for about `budget` at most, and uses the fastest for products of
    /// the same sizes, types and layout from now on. What the backend would choose without measuring is measured
    /// first and kept unless another is clearly faster. Blocks; C is left as it is.
    ///
    /// # Errors
    /// Those of [`matmul`](ComputeBackend::matmul).
    #[cfg(not(target_family = "wasm"))]
    pub fn tune_matmul(&self, desc: &MatmulDesc, budget: Duration) -> BackendResult<()> {
        let op = "tune_matmul";
        let start = Instant::now();
        let best = Cell::new(f64::INFINITY);
        ops::tune_matmul(&*self.context(op)?, op, desc, |work| {
            if best.get() < f64::INFINITY && start.elapsed() >= budget {
                return Ok(None);
            }
            // Compiles the kernel, and wakes the device.
            let mut least = self.seconds(work)?;
            for _ in 0..RUNS {
                // What is far slower once will not be the fastest.
                if least > 2.0 * best.get() {
                    break;
                }
                least = least.min(self.seconds(work)?);
            }
            best.set(best.get().min(least));
            Ok(Some(least))
        })
    }

    /// What [`tune_matmul`](Self::tune_matmul) has found, as lines of text, with the adapter and driver for which it is
    /// true.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let backend = backend_webgpu::WebGpuBackend::new()?;
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
        let context = self.context("tuning")?;
        let lines = context.tuning.lines().into_iter();
        Ok(std::iter::once(self.tuning_header()).chain(lines).map(|line| line + "\n").collect())
    }

    /// Uses what [`tuning`](Self::tuning) returned in another run. Takes nothing if it was found on another adapter or with
    /// another driver; the number of products that it knows of.
    ///
    /// # Errors
    /// [`NotInitialized`](backend_api::BackendError::NotInitialized).
    pub fn set_tuning(&self, text: &str) -> BackendResult<usize> {
        let context = self.context("set_tuning")?;
        let mut lines = text.lines();
        if lines.next() != Some(self.tuning_header().as_str()) {
            return Ok(0);
        }
        Ok(lines.filter(|line| context.tuning.learn(line)).count())
    }

    fn tuning_header(&self) -> String {
        let device = self.device_info();
        device.map_or_else(String::new, |device| {
            format!("{} | {} | {}", device.name, device.api, device.driver)
        })
    }

    /// How long a work takes: on the device if that has a clock, else until it has finished.
    #[cfg(not(target_family = "wasm"))]
    fn seconds(&self, work: &dyn Fn() -> BackendResult<()>) -> BackendResult<f64> {
        if self.capabilities()?.timestamps {
            return Ok(self.time(|_| work())?.as_secs_f64());
        }
        self.synchronize()?;
        let start = Instant::now();
        work()?;
        self.synchronize()?;
        Ok(start.elapsed().as_secs_f64())
    }
}
