//! Kernels of the caller's own, as methods of the backend.

mod compare;
mod profile;
mod specs;

use backend_api::BackendResult;

use crate::WebGpuBackend;
use crate::custom::{self, Kernel, KernelDesc};

pub use compare::{Comparison, Expected};
pub use profile::{Clock, Profile, ProfileOptions};
pub use specs::{BuiltIn, CooperativeMatrix, DeviceSpecs};

impl WebGpuBackend {
    /// Compiles WGSL of the caller's own. Not in browsers.
    ///
    /// It is checked by naga, and against the device's limits and features where naga doesn't look. A launch runs
    /// with the compiler's checks: an index outside of a binding or an array reads some element of it or writes
    /// nothing, an integer divided by 0 is itself. A loop without an end stays one: the next wait is
    /// [`Timeout`](backend_api::BackendError::Timeout), and what else becomes of it is the driver's.
    ///
    /// ```no_run
    /// use backend_api::ComputeBackend as _;
    /// use backend_webgpu::{KernelDesc, WebGpuBackend};
    ///
    /// # fn main() -> backend_api::BackendResult<()> {
    /// let backend = WebGpuBackend::open()?;
    /// let kernel = backend.kernel(&KernelDesc::new("scale", "
    ///     struct Params { factor: f32 }
    ///     @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    ///     @group(0) @binding(1) var<uniform> params: Params;
    ///     @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    ///         if id.x < arrayLength(&x) { x[id.x] *= params.factor; }
    ///     }"))?;
    /// let x = backend.alloc(4 * 1000)?;
    /// backend.launch(&kernel, &[x], &2.0_f32.to_le_bytes(), kernel.grid_for([1000, 1, 1]))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Kernel`](backend_api::BackendError::Kernel) with what is wrong, where, and the source line.
    pub fn kernel(&self, desc: &KernelDesc) -> BackendResult<Kernel> {
        custom::compile(&self.context("kernel")?.context, desc)
    }

    /// Launches a kernel in order with all other calls: `bindings` are handles, or views, for
    /// [`Kernel::bindings`] in their order, `params` the bytes of [`Kernel::params`], `grid` the workgroups
    /// along x, y and z, less than 2³² together. A grid with a 0 launches nothing.
    ///
    /// The kernel sees the bytes of each handle and no others: `arrayLength` counts those. A view that is written has
    /// to begin at a multiple of the device's `min_storage_buffer_offset_alignment` and to be whole words. A view that
    /// is only read is copied first where it begins elsewhere, ends within a word, or shares its allocation with
    /// what is written. Where it ends within a word, the kernel sees zeros up to the word's end, which `arrayLength`
    /// counts too.
    ///
    /// # Errors
    /// [`InvalidHandle`](backend_api::BackendError::InvalidHandle), also for a kernel of another device or of one
    /// that was lost; [`Shape`](backend_api::BackendError::Shape) for the number of bindings, the bytes of `params`
    /// and written bytes that are not whole words; [`BufferTooSmall`](backend_api::BackendError::BufferTooSmall)
    /// for less than [`min_bytes`](crate::BindingInfo::min_bytes);
    /// [`Misaligned`](backend_api::BackendError::Misaligned); [`Overlap`](backend_api::BackendError::Overlap) where
    /// written bytes are bound twice; [`Limit`](backend_api::BackendError::Limit) for the grid, the bytes of a
    /// binding, and those of a written one that lie in one buffer.
    pub fn launch(
        &self,
        kernel: &Kernel,
        bindings: &[u64],
        params: &[u8],
        grid: [u32; 3],
    ) -> BackendResult<()> {
        self.call("launch", |ctx, op| custom::launch(ctx, op, kernel, bindings, params, grid))
    }
}
