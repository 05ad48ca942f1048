//! What the suites ask of a backend, and have it do, beyond its API.

use backend_api::BackendResult;
#[cfg(doc)]
use backend_api::{BackendError, ComputeBackend};

use crate::WebGpuBackend;

impl WebGpuBackend {
    /// Takes the device for `slowdown` times slower than its kind is, and has every operation
    /// halved `halvings` times where it can be divided.
    ///
    /// # Errors
    /// [`NotInitialized`](BackendError::NotInitialized).
    pub fn pretend(&self, slowdown: f64, halvings: u32) -> BackendResult<()> {
        self.context("pretend")?.context.state.pace.pretend(slowdown, halvings);
        Ok(())
    }

    /// Opens the device as [`init`](ComputeBackend::init) does, with every feature that is used, but with the
    /// adapter's limits as `lower` changes them.
    ///
    /// # Errors
    /// [`NoAdapter`](BackendError::NoAdapter).
    #[cfg(not(target_family = "wasm"))]
    pub fn init_with_limits(&mut self, lower: impl FnOnce(&mut wgpu::Limits)) -> BackendResult<()> {
        pollster::block_on(self.init_within(lower))
    }

    /// After `after` more attempts to allocate, of operations' own memory too, the next `count` are
    /// refused as if the device had no memory. Each allocation attempts it a few times.
    ///
    /// # Errors
    /// [`NotInitialized`](BackendError::NotInitialized).
    pub fn refuse_allocations(&self, after: usize, count: usize) -> BackendResult<()> {
        self.context("refuse_allocations")?.device().memory.pool().refuse(after, count);
        Ok(())
    }

    /// How many launches a replay makes.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle).
    pub fn launches(&self, graph: u64) -> BackendResult<usize> {
        self.context("launches")?.device().launches("launches", graph)
    }

    /// The kernels that `work` launches, in turn, each by its file and variant, such as `"gemm/tiled (f32 …)"`, found
    /// out without launching one. Where `work` reads a result, it finds what was there before.
    ///
    /// # Errors
    /// [`NotInitialized`](BackendError::NotInitialized).
    pub fn planned(&self, work: impl FnOnce(&Self)) -> BackendResult<Vec<String>> {
        let planner = Self::over(self.context_async("planned")?.dry_run());
        work(&planner);
        let variants = planner.context("planned")?.context.take_variants();
        Ok(variants.iter().map(|variant| format!("{variant:?}")).collect())
    }

    /// How often recorded work was submitted because more would have been too long.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.opened().map_or(0, |opened| opened.state().pace.cuts())
    }
}
