//! What a backend says of itself.

/// What kind of hardware does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A GPU with its own memory.
    DiscreteGpu,
    /// A GPU that shares the CPU's memory.
    IntegratedGpu,
    /// A GPU handed through by a hypervisor.
    VirtualGpu,
    /// Not told by the driver.
    Other,
    /// The host CPU, used directly.
    Cpu,
    /// The host CPU behind a GPU interface, such as lavapipe, llvmpipe or SwiftShader.
    SoftwareAdapter,
}

impl DeviceKind {
    /// Lower is faster, as a rule. The host CPU used directly beats a software adapter.
    #[must_use]
    pub const fn rank(self) -> u8 {
        match self {
            Self::DiscreteGpu => 0,
            Self::IntegratedGpu => 1,
            Self::VirtualGpu => 2,
            Self::Other => 3,
            Self::Cpu => 4,
            Self::SoftwareAdapter => 5,
        }
    }
}

/// One device that a backend can use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The name that selects it in a [`Registry`](crate::Registry), such as `"webgpu:1"`.
    pub selector: String,
    /// The device's own name, such as `"NVIDIA H200"`.
    pub name: String,
    /// The interface through which it is driven: `"Vulkan"`, `"Metal"`, `"Dx12"`, `"Gl"`, `"BrowserWebGpu"`,
    /// `"host"`.
    pub api: String,
    /// The driver's name and version, empty where it doesn't tell.
    pub driver: String,
    /// What kind of hardware it is.
    pub kind: DeviceKind,
}

/// What the device behind a backend can do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether tensors of f16 can be used in operations.
    pub f16: bool,
    /// Smallest and largest number of lanes in a subgroup, where kernels can use subgroups.
    pub subgroup_size: Option<(u32, u32)>,
    /// Whether tensor cores are used for f16 products.
    pub cooperative_matrix: bool,
    /// Bytes that one handle can name at most. It says nothing of how much memory there is: that is told by
    /// [`OutOfMemory`](crate::BackendError::OutOfMemory), and where the driver tells by `WebGpuBackend::device_specs`.
    pub max_alloc_bytes: usize,
    /// Bytes of an operand that one launch of a kernel reaches. Calls with larger operands are made in parts; what
    /// can't be divided, such as a single row, is [`Limit`](crate::BackendError::Limit) beyond it.
    pub max_binding_bytes: usize,
    /// Whether device time can be measured.
    pub timestamps: bool,
    /// Whether blocking calls work; false on a browser's main thread.
    pub blocking: bool,
}

impl Capabilities {
    /// What every backend on a CPU can do.
    #[must_use]
    pub const fn host() -> Self {
        Self {
            f16: true,
            subgroup_size: None,
            cooperative_matrix: false,
            max_alloc_bytes: isize::MAX as usize,
            max_binding_bytes: isize::MAX as usize,
            timestamps: false,
            blocking: true,
        }
    }
}

/// Where a backend's memory is. All sizes are bytes. What a backend needs for itself isn't counted: of a WebGPU device, 4 MiB of
/// counters from the first launch on that needs them, and without immediates 256 bytes for the parameters of each launch of a graph
/// and of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// In allocations that have a live handle, rounded up as allocated, operands of graphs, which outlive their
    /// handles, and [`scratch`](Self::scratch) memory.
    pub in_use: usize,
    /// The largest [`in_use`](Self::in_use) so far.
    pub peak: usize,
    /// Asked for by the allocations that are in use: how much of [`in_use`](Self::in_use) isn't rounding.
    pub asked: usize,
    /// The scratch memory of operations and graphs, a part of [`in_use`](Self::in_use) that has no handle.
    pub scratch: usize,
    /// Kept for reuse; [`trim`](crate::ComputeBackend::trim) returns it to the system.
    pub pooled: usize,
    /// The largest buffer kept for reuse.
    pub largest_free: usize,
    /// Freed and not kept, but held by the device until the work that uses it has finished.
    pub releasing: usize,
    /// In staging buffers for uploads and read-backs.
    pub staging: usize,
    /// Live handles, views included.
    pub handles: usize,
    /// The bound on [`in_use`](Self::in_use), [`pooled`](Self::pooled) and [`releasing`](Self::releasing)
    /// together, where one was set.
    pub budget: Option<usize>,
}

impl MemoryStats {
    /// Bytes of the device's memory altogether, staging aside: in use, kept for reuse, and not yet given back.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.in_use.saturating_add(self.pooled).saturating_add(self.releasing)
    }
}
