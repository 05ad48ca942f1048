//! What is known of a device's size and speed, and of the device that planners' times were measured on.

use backend_api::DeviceKind;

use crate::unchecked::ShaderCores;

/// The costs that planners weigh against the times of tiles, measured on one device: an NVIDIA H200, through
/// Vulkan.
///
/// Estimates are nanoseconds of that device everywhere, those of tiles too, which stand beside the tiles. They
/// are only compared with each other, so a device whose launches, compute units and memory are slower alike has
/// the same plans. No interface tells any of these times.
pub(crate) mod h200 {
    /// Streaming multiprocessors.
    pub(crate) const COMPUTE_UNITS: usize = 132;

    /// Nanoseconds of a launch, and of what an invocation does once.
    pub(crate) const LAUNCH: usize = 2500;

    /// Nanoseconds of a launch that adds partial sums.
    pub(crate) const COMBINING_LAUNCH: usize = 3000;

    /// Nanoseconds of a launch and of waiting for the one before.
    pub(crate) const DEPENDENT_LAUNCH: usize = 4000;

    /// [`DEPENDENT_LAUNCH`] of a kernel of few loads.
    pub(crate) const SHORT_LAUNCH: usize = 2500;

    /// Nanoseconds of writing and reading so many partial sums, `rate` of them in a nanosecond on all of an H200, by
    /// a device of so many compute units: each unit has its share of the memory's speed.
    pub(crate) fn partial_sums(count: usize, rate: usize, compute_units: usize) -> usize {
        // Divided first, as products of large sizes would saturate on a page's 32 bits.
        (count / rate).saturating_mul(COMPUTE_UNITS) / compute_units.max(1)
    }
}

/// More compute units than any device has. A driver or a tuning that says more is wrong.
const TOO_MANY: usize = 4096;

/// Where a device's number of compute units is from, the most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Driver,
    Tuning,
    /// What is usual for its kind.
    Guess,
}

impl Source {
    const fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Tuning => "tuning",
            Self::Guess => "guess",
        }
    }
}

/// The size and the sustained speed of a device. WebGPU tells neither. Vulkan's drivers of NVIDIA and AMD tell
/// compute units; the rest is what is usual for the device's kind: good enough to compare plans, and to tell work of
/// milliseconds from work of seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DeviceProfile {
    /// Compute units (streaming multiprocessors), which run workgroups side by side. Never 0.
    pub(crate) compute_units: usize,
    /// Who says how many compute units there are.
    source: Source,
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
    /// A discrete GPU: of a small device in speed, as the work of one must not be too long for another, and of an
    /// H200 in size.
    const DISCRETE: Self = Self::guessed(h200::COMPUTE_UNITS, 4e12, 2e11, 3e7);
    /// A GPU that shares the CPU's memory, or one whose kind isn't known.
    const INTEGRATED: Self = Self::guessed(16, 5e11, 2e10, 3e7);
    /// One core of a CPU.
    const CORE: Self = Self::guessed(1, 2e9, 2e9, 1e8);

    /// How much faster tensor cores multiply f16.
    const TENSOR_CORES: f64 = 10.0;

    const fn guessed(compute_units: usize, flops: f64, bandwidth: f64, iterations: f64) -> Self {
        Self { compute_units, source: Source::Guess, flops, flops_f16: flops, bandwidth, iterations }
    }

    /// What is usual for a kind of device.
    pub(crate) fn of(kind: DeviceKind, tensor_cores: bool) -> Self {
        let profile = match kind {
            DeviceKind::DiscreteGpu => Self::DISCRETE,
            DeviceKind::IntegratedGpu | DeviceKind::VirtualGpu | DeviceKind::Other => Self::INTEGRATED,
            _ => Self::of_cores(std::thread::available_parallelism().map_or(1, usize::from)),
        };
        let faster = if tensor_cores { Self::TENSOR_CORES } else { 1.0 };
        Self { flops_f16: faster * profile.flops_f16, ..profile }
    }

    /// A software adapter on `count` cores of a CPU, which is planned for as one compute unit.
    pub(crate) fn of_cores(count: usize) -> Self {
        let (core, count) = (Self::CORE, count as f64);
        Self::guessed(core.compute_units, core.flops * count, core.bandwidth * count, core.iterations)
    }

    /// Who says how many compute units there are: `"driver"`, `"tuning"` or `"guess"`.
    #[cfg_attr(target_family = "wasm", expect(dead_code, reason = "a page has no `device_specs`"))]
    pub(crate) const fn compute_units_from(&self) -> &'static str {
        self.source.name()
    }

    /// With the compute units that the driver tells, where that can be true.
    pub(crate) fn told(self, cores: ShaderCores) -> Self {
        compute_units(cores).map_or(self, |compute_units| Self {
            compute_units,
            source: Source::Driver,
            ..self
        })
    }

    /// With the compute units of the tuning, if it has some and the driver doesn't tell.
    pub(crate) fn or_tuned(self, tuned: Option<usize>) -> Self {
        match tuned.and_then(plausible_compute_units) {
            Some(compute_units) if self.source == Source::Guess => {
                Self { compute_units, source: Source::Tuning, ..self }
            }
            _ => self,
        }
    }
}

/// The compute units of a device, if the driver says so and that can be true.
fn compute_units(ShaderCores { multiprocessors, active_units, arrays }: ShaderCores) -> Option<usize> {
    // AMD's arrays count units that are turned off too.
    let [engines, arrays, units] = arrays.map(|count| count as usize);
    let all_units = engines.saturating_mul(arrays).saturating_mul(units);
    [multiprocessors as usize, active_units as usize, all_units].into_iter().find_map(plausible_compute_units)
}

/// A number of compute units that a device can have.
pub(crate) fn plausible_compute_units(compute_units: usize) -> Option<usize> {
    (1..TOO_MANY).contains(&compute_units).then_some(compute_units)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: ShaderCores = ShaderCores { multiprocessors: 0, active_units: 0, arrays: [0; 3] };

    fn guess() -> DeviceProfile {
        DeviceProfile::of(DeviceKind::DiscreteGpu, false)
    }

    #[test]
    fn drivers_of_nvidia_and_amd_tell_compute_units() {
        let told = |cores| {
            let profile = guess().told(cores);
            assert_eq!(profile.source, Source::Driver, "{cores:?}");
            profile.compute_units
        };
        assert_eq!(told(ShaderCores { multiprocessors: 24, ..NOTHING }), 24);
        // Two units of each of the 16 arrays are turned off.
        let arrays = [8, 2, 8];
        assert_eq!(told(ShaderCores { active_units: 96, arrays, ..NOTHING }), 96);
        assert_eq!(told(ShaderCores { arrays, ..NOTHING }), 128);
        assert_eq!(told(ShaderCores { active_units: u32::MAX, arrays, ..NOTHING }), 128);
        assert_eq!(told(ShaderCores { multiprocessors: 1, ..NOTHING }), 1);
    }

    #[test]
    fn what_cannot_be_true_is_not_believed() {
        for cores in [
            NOTHING,
            ShaderCores { multiprocessors: u32::MAX, ..NOTHING },
            ShaderCores { active_units: TOO_MANY as u32, ..NOTHING },
            ShaderCores { arrays: [u32::MAX; 3], ..NOTHING },
            ShaderCores { arrays: [4, 0, 8], ..NOTHING },
        ] {
            assert_eq!(guess().told(cores), guess(), "{cores:?}");
        }
    }

    #[test]
    fn the_driver_is_believed_before_the_tuning_and_that_before_a_guess() {
        let tuned = guess().or_tuned(Some(40));
        assert_eq!((tuned.compute_units, tuned.source), (40, Source::Tuning));
        assert_eq!(
            DeviceProfile { compute_units: guess().compute_units, source: Source::Guess, ..tuned },
            guess()
        );
        let told = guess().told(ShaderCores { multiprocessors: 24, ..NOTHING });
        assert_eq!(told.or_tuned(Some(40)), told);
        for wrong in [None, Some(0), Some(TOO_MANY), Some(usize::MAX)] {
            assert_eq!(guess().or_tuned(wrong), guess(), "{wrong:?}");
        }
    }

    #[test]
    fn a_device_has_its_share_of_the_memory() {
        let of = |compute_units| h200::partial_sums(1_000_000, 250, compute_units);
        assert_eq!([of(h200::COMPUTE_UNITS), of(h200::COMPUTE_UNITS / 2)], [4000, 8000]);
        assert_eq!(of(0), of(1));
        assert_eq!(h200::partial_sums(usize::MAX, 1, 1), usize::MAX);
    }
}
