//! What is known of a device's speed.

use backend_api::DeviceKind;

/// The size and the sustained speed of a device. wgpu tells neither, so they are what is usual for its kind:
/// good enough to compare plans, and to tell work of milliseconds from work of seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DeviceProfile {
    /// Compute units (streaming multiprocessors), which run workgroups side by side.
    pub(crate) compute_units: usize,
    /// Floating-point operations in a second of products of f32, a multiplication with its addition being
    /// two.
    pub(crate) flops: f64,
    /// Floating-point operations of f16 products in a second, on tensor cores where there are some.
    pub(crate) flops_f16: f64,
    /// Bytes in a second of kernels that do little more than read and write.
    pub(crate) bandwidth: f64,
    /// Iterations in a second of one invocation's loop, each with a load.
    pub(crate) iterations: f64,
}

impl DeviceProfile {
    /// Discrete: of a small device in speed, as the work of one must not be too long for another, and of an
    /// H200 in size.
    const DISCRETE: Self =
        Self { compute_units: 132, flops: 4e12, flops_f16: 4e12, bandwidth: 2e11, iterations: 3e7 };
    const INTEGRATED: Self =
        Self { compute_units: 16, flops: 5e11, flops_f16: 5e11, bandwidth: 2e10, iterations: 3e7 };
    /// One core of a CPU.
    const CORE: Self = Self { compute_units: 1, flops: 2e9, flops_f16: 2e9, bandwidth: 2e9, iterations: 1e8 };

    /// How much faster tensor cores multiply f16.
    const TENSOR_CORES: f64 = 10.0;

    pub(crate) fn of(kind: DeviceKind, tensor_cores: bool) -> Self {
        let profile = match kind {
            DeviceKind::DiscreteGpu => Self::DISCRETE,
            DeviceKind::IntegratedGpu | DeviceKind::VirtualGpu | DeviceKind::Other => Self::INTEGRATED,
            _ => Self::CORE.times(std::thread::available_parallelism().map_or(1, usize::from)),
        };
        let faster = if tensor_cores { Self::TENSOR_CORES } else { 1.0 };
        Self { flops_f16: faster * profile.flops_f16, ..profile }
    }

    /// The throughput of so many. A software adapter is still planned for as one compute unit.
    fn times(self, count: usize) -> Self {
        let count = count as f64;
        Self {
            flops: self.flops * count,
            flops_f16: self.flops_f16 * count,
            bandwidth: self.bandwidth * count,
            ..self
        }
    }
}
