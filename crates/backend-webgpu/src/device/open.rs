//! Opening an adapter.

use std::sync::Arc;

use backend_api::{BackendError, BackendResult, DeviceInfo};

use super::closing::compiling;
use super::cooperative::has_cooperative_matrices;
use super::{DeviceProfile, GuardedDevice, Health};
use crate::unchecked;

/// An opened adapter.
#[derive(Debug)]
pub(crate) struct Gpu {
    /// Keeps the adapter's world alive.
    pub(crate) _instance: wgpu::Instance,
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) device: GuardedDevice,
    pub(crate) queue: wgpu::Queue,
    pub(crate) info: DeviceInfo,
    pub(crate) profile: DeviceProfile,
    /// What kernels are chosen by; those of the device, asked for once.
    pub(crate) limits: wgpu::Limits,
    pub(crate) health: Arc<Health>,
    /// Whether kernels may use cooperative matrices: 16×16 of f16 with sums of f32.
    pub(crate) cooperative_matrices: bool,
    /// Whether kernels on such matrices may be given as SPIR-V of version 1.5, and name elements of fragments
    /// there.
    pub(crate) takes_spirv: bool,
    /// Invocations of a subgroup, where kernels may use subgroups and all are of one size.
    pub(crate) subgroup: Option<u32>,
    /// Whether barriers order storage memory between workgroups, and not only within one. WGSL promises the latter; what
    /// wgpu makes of `storageBarrier` is a barrier with the scope of the device in SPIR-V, and that of a workgroup in
    /// other languages.
    pub(crate) device_scope_barriers: bool,
    /// Whether kernels may multiply four signed bytes with four at once. Natively, wgpu writes that in other words where
    /// the device has no instruction for it.
    pub(crate) packed_dots: bool,
}

impl Gpu {
    /// What is known of an open device, whose callbacks are taken.
    pub(crate) fn new(
        instance: wgpu::Instance,
        adapter: wgpu::Adapter,
        device: GuardedDevice,
        queue: wgpu::Queue,
        info: DeviceInfo,
    ) -> Self {
        let needed = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
            | wgpu::Features::SHADER_F16
            | wgpu::Features::SUBGROUP;
        let cooperative_matrices = device.features().contains(needed) && has_cooperative_matrices(&adapter);
        Self {
            profile: DeviceProfile::of(info.kind, cooperative_matrices)
                .told(unchecked::shader_cores(&adapter)),
            limits: device.limits(),
            health: Health::watch(&device),
            cooperative_matrices,
            takes_spirv: cooperative_matrices && takes_spirv(&adapter, &device),
            subgroup: subgroup(&adapter, &device),
            device_scope_barriers: has_device_scope_barriers(&adapter),
            packed_dots: instance
                .wgsl_language_features()
                .contains(wgpu::WgslLanguageFeatures::Packed4x8IntegerDotProduct),
            _instance: instance,
            adapter,
            device,
            queue,
            info,
        }
    }
}

/// Whether a device takes SPIR-V. wgpu doesn't tell which versions; 1.5 is there where cooperative matrices
/// are.
fn takes_spirv(adapter: &wgpu::Adapter, device: &wgpu::Device) -> bool {
    adapter.get_info().backend == wgpu::Backend::Vulkan
        && device.features().contains(wgpu::Features::PASSTHROUGH_SHADERS)
}

/// Whether barriers of kernels reach the driver as SPIR-V, and are followed there: on Apple's systems, Vulkan is a layer on
/// Metal, whose barriers have the scope of a workgroup.
fn has_device_scope_barriers(adapter: &wgpu::Adapter) -> bool {
    adapter.get_info().backend == wgpu::Backend::Vulkan && !cfg!(target_vendor = "apple")
}

/// The size of every subgroup. Browsers want a text with subgroups to say so, which wgpu's compiler refuses.
fn subgroup(adapter: &wgpu::Adapter, device: &wgpu::Device) -> Option<u32> {
    let usable = !cfg!(target_family = "wasm") && device.features().contains(wgpu::Features::SUBGROUP);
    fixed_subgroup(&adapter.get_info()).filter(|_| usable)
}

/// PCI's number of NVIDIA.
const NVIDIA: u32 = 0x10de;

/// The size of every subgroup of every kernel, if there is only one. Of Direct3D's numbers, its documentation tells programs
/// to rely on `WaveLaneCountMin` alone, and kept `WaveLaneCountMax` for later: that a driver reports equal ones says nothing.
/// NVIDIA's devices have no other size than 32.
fn fixed_subgroup(info: &wgpu::AdapterInfo) -> Option<u32> {
    let &wgpu::AdapterInfo { subgroup_min_size: min, subgroup_max_size: max, backend, vendor, .. } = info;
    let is_known = backend != wgpu::Backend::Dx12 || vendor == NVIDIA;
    (is_known && min == max).then_some(min)
}

/// What is used where an adapter has it. Nothing is required.
fn wanted_features() -> wgpu::Features {
    wgpu::Features::SHADER_F16
        | wgpu::Features::IMMEDIATES
        | wgpu::Features::SUBGROUP
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::PIPELINE_CACHE
}

/// Opens a device with these limits and everything that the adapter offers of what is used, cooperative matrices if
/// they are wanted.
///
/// # Errors
/// [`NoAdapter`](BackendError::NoAdapter) if the adapter doesn't open.
pub(crate) async fn open(
    instance: wgpu::Instance,
    adapter: wgpu::Adapter,
    info: DeviceInfo,
    limits: wgpu::Limits,
    cooperative_matrices: bool,
) -> BackendResult<Gpu> {
    let mut required_features = adapter.features() & wanted_features();
    let mut experimental_features = wgpu::ExperimentalFeatures::disabled();
    if cooperative_matrices && has_cooperative_matrices(&adapter) {
        required_features |= wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX
            | (adapter.features() & wgpu::Features::PASSTHROUGH_SHADERS);
        experimental_features = unchecked::experimental_features();
    }
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("backend-webgpu"),
        required_features,
        experimental_features,
        required_limits: limits,
        memory_hints: wgpu::MemoryHints::Performance,
        ..Default::default()
    };
    let opened = {
        // wgpu compiles kernels of its own then.
        let _compiling = compiling();
        adapter.request_device(&descriptor)
    };
    let (device, queue) = match opened.await {
        Ok(opened) => opened,
        Err(error) => {
            // With the last handles of an instance and an adapter, their drivers close what they have opened.
            let _compiling = compiling();
            drop((adapter, instance));
            let tried = vec![format!("{} = {} ({}): {error}", info.selector, info.name, info.api)];
            return Err(BackendError::NoAdapter { tried });
        }
    };
    Ok(Gpu::new(instance, adapter, GuardedDevice::own(device), queue, info))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subgroups_are_used_where_all_are_of_one_size() {
        let of = |backend, vendor, [min, max]: [u32; 2]| {
            let info = wgpu::AdapterInfo::new(wgpu::DeviceType::IntegratedGpu, backend);
            fixed_subgroup(&wgpu::AdapterInfo {
                vendor,
                subgroup_min_size: min,
                subgroup_max_size: max,
                ..info
            })
        };
        let (vulkan, direct3d, intel) = (wgpu::Backend::Vulkan, wgpu::Backend::Dx12, 0x8086);
        assert_eq!(of(vulkan, intel, [8, 32]), None);
        assert_eq!(of(wgpu::Backend::Metal, 0, [4, 64]), None);
        assert_eq!(
            [[8, 8], [16, 16], [64, 64]].map(|sizes| of(vulkan, 0, sizes)),
            [Some(8), Some(16), Some(64)]
        );
        assert_eq!([of(direct3d, intel, [8, 8]), of(direct3d, NVIDIA, [32, 32])], [None, Some(32)]);
    }
}
