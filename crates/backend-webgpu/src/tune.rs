//! Measuring kernels on the device. That waits for it, which browsers refuse.

use std::cell::Cell;
use std::time::{Duration, Instant};

use backend_api::desc::MatmulDesc;
use backend_api::{BackendResult, ComputeBackend};

use crate::{WebGpuBackend, ops};

/// Runs of a kernel that are timed; the fastest counts.
const RUNS: usize = 5;

impl WebGpuBackend {
    /// Measures every kernel that can make such a product, for about `budget` at most, and uses the fastest
    /// for products of the same sizes, types and layout from now on. What the backend would choose without
    /// measuring is measured first and kept unless another is clearly faster. Blocks; C is left as it is.
    ///
    /// # Errors
    /// What [`matmul`](ComputeBackend::matmul) returns.
    pub fn tune_matmul(&self, desc: &MatmulDesc, budget: Duration) -> BackendResult<()> {
        let op = "tune_matmul";
        let start = Instant::now();
        let best = Cell::new(f64::INFINITY);
        ops::tune_matmul(&self.context(op)?.context, op, desc, |work| {
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

    /// How long a work takes: on the device if that has a clock, else until it has finished.
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
