//! The few `unsafe` calls of this crate.
#![allow(unsafe_code, reason = "wgpu and ash mark these calls unsafe; each says below why it is sound here")]

/// A kernel in SPIR-V.
#[cfg(not(target_family = "wasm"))]
#[derive(Debug)]
pub(crate) struct Spirv {
    pub(crate) words: Vec<u32>,
    pub(crate) workgroup_size: (u32, u32, u32),
}

/// Compiles a kernel of shaders/ without run-time checks in the shader.
///
/// The checks would clamp every index and count the iterations of every loop, which costs up to half of a kernel's
/// speed.
pub(crate) fn shader_module(device: &wgpu::Device, label: &str, wgsl: String) -> wgpu::ShaderModule {
    let descriptor =
        wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(wgsl.into()) };
    // SAFETY: Only the crate's own kernels come here, for launches whose operands were checked: each lies in
    // its binding with every element that its descriptor names. No kernel is meant to access anything else:
    // `cargo xtask test-bounds` compares each access of what it runs with the operand's bytes, and that of
    // any other array with its length; docs/reliability.md says how much has run so. An operand's words are
    // bound whole, and so is the first element of an input, which may be loaded in place of one that doesn't
    // exist (docs/architecture.md). What is not counted but argued: loops have bounds that they don't change,
    // and integers are divided by constants and by sizes that aren't 0.
    unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
}

/// Compiles a kernel whose accesses are counted. What lies outside is clamped; the rest is as for
/// [`shader_module`].
#[cfg(feature = "count-out-of-bounds")]
pub(crate) fn counted_module(device: &wgpu::Device, label: &str, module: naga::Module) -> wgpu::ShaderModule {
    let source = wgpu::ShaderSource::Naga(std::borrow::Cow::Owned(module));
    let descriptor = wgpu::ShaderModuleDescriptor { label: Some(label), source };
    let checks = wgpu::ShaderRuntimeChecks { bounds_checks: true, ..wgpu::ShaderRuntimeChecks::unchecked() };
    // SAFETY: As for `shader_module`, but that indices are checked.
    unsafe { device.create_shader_module_trusted(descriptor, checks) }
}

/// Takes a kernel of shaders/ that this crate has translated itself, without run-time checks in the shader.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn spirv_module(device: &wgpu::Device, label: &str, spirv: Spirv) -> wgpu::ShaderModule {
    let main =
        wgpu::PassthroughShaderEntryPoint { name: "main".into(), workgroup_size: spirv.workgroup_size };
    let descriptor = wgpu::ShaderModuleDescriptorPassthrough {
        label: Some(label),
        entry_points: vec![main].into(),
        spirv: Some(spirv.words.into()),
        ..Default::default()
    };
    // SAFETY: The words come from naga, whose validator has accepted the crate's own text, and differ from
    // what wgpu would make of it by hints and, in kernels that say so, by accesses to the first eight
    // elements of matrices of 256, which subgroups of 32 share. The suite `shaders` compares the text's
    // bindings with the layout. The device has been opened for SPIR-V and what the text needs, or `Pipelines`
    // would not ask. For indices and loops see `shader_module`.
    unsafe { device.create_shader_module_passthrough(descriptor) }
}

/// A pipeline cache that begins with what another process has saved, or empty.
#[cfg(not(target_family = "wasm"))]
pub(crate) fn pipeline_cache(device: &wgpu::Device, saved: Option<&[u8]>) -> wgpu::PipelineCache {
    let descriptor = wgpu::PipelineCacheDescriptor { label: Some("kernels"), data: saved, fallback: true };
    // SAFETY: `saved` is what `PipelineCache::get_data` returned: it comes from a file whose checksum, written
    // with it, is right, in a folder that the program has chosen and that others must not write
    // (`WebGpuBackend::with_cache_dir`). wgpu and the driver each compare its header with the device.
    unsafe { device.create_pipeline_cache(&descriptor) }
}

/// What a Vulkan driver tells of a device's compute units; 0 is what it doesn't tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShaderCores {
    /// Streaming multiprocessors: VK_NV_shader_sm_builtins.
    pub(crate) multiprocessors: u32,
    /// Compute units that are turned on: VK_AMD_shader_core_properties2.
    pub(crate) active_units: u32,
    /// Shader engines, arrays of each, and compute units of each of those: VK_AMD_shader_core_properties.
    pub(crate) arrays: [u32; 3],
}

/// Asks a Vulkan driver for a device's compute units. No other interface tells them.
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub(crate) fn shader_cores(adapter: &wgpu::Adapter) -> ShaderCores {
    use ash::khr::get_physical_device_properties2 as properties2;
    use ash::{amd, nv, vk};
    // SAFETY: The adapter behind the guard is only asked for properties. Nothing of it is destroyed or kept.
    let Some(adapter) = (unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }) else {
        return ShaderCores::default();
    };
    let instance = adapter.shared_instance();
    if !instance.extensions().contains(&properties2::NAME) {
        return ShaderCores::default();
    }
    let mut of_nvidia = vk::PhysicalDeviceShaderSMBuiltinsPropertiesNV::default();
    let mut of_amd = vk::PhysicalDeviceShaderCorePropertiesAMD::default();
    let mut of_amd_2 = vk::PhysicalDeviceShaderCoreProperties2AMD::default();
    let has = |extension| adapter.physical_device_capabilities().supports_extension(extension);
    let mut properties = vk::PhysicalDeviceProperties2::default();
    if has(nv::shader_sm_builtins::NAME) {
        properties = properties.push_next(&mut of_nvidia);
    }
    if has(amd::shader_core_properties::NAME) {
        properties = properties.push_next(&mut of_amd);
    }
    if has(amd::shader_core_properties2::NAME) {
        properties = properties.push_next(&mut of_amd_2);
    }
    let query = properties2::Instance::new(instance.entry(), instance.raw_instance());
    // SAFETY: The instance was made with the extension that the function belongs to, and lives as long as the
    // guard, as does the physical device, which is one of its own. Each structure in the chain is of an
    // extension that the physical device has, is there once, and outlives the call.
    unsafe { query.get_physical_device_properties2(adapter.raw_physical_device(), &mut properties) };
    ShaderCores {
        multiprocessors: of_nvidia.shader_sm_count,
        active_units: of_amd_2.active_compute_unit_count,
        arrays: [
            of_amd.shader_engine_count,
            of_amd.shader_arrays_per_engine_count,
            of_amd.compute_units_per_shader_array,
        ],
    }
}

/// Nothing, where wgpu has no Vulkan.
#[cfg(not(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")))]
pub(crate) fn shader_cores(_: &wgpu::Adapter) -> ShaderCores {
    ShaderCores::default()
}

/// Asks a Vulkan driver for the bytes of a device's largest heap of memory of its own. No other interface tells them.
#[cfg(any(windows, target_os = "linux", target_os = "android", target_os = "freebsd"))]
pub(crate) fn device_memory(adapter: &wgpu::Adapter) -> Option<u64> {
    use ash::vk::MemoryHeapFlags;
    // SAFETY: The adapter behind the guard is only asked for properties. Nothing of it is destroyed or kept.
    let adapter = unsafe { adapter.as_hal::<wgpu::hal::api::Vulkan>() }?;
    let instance = adapter.shared_instance().raw_instance();
    // SAFETY: The function is of Vulkan 1.0. The instance lives as long as the guard, as does the physical device,
    // which is one of its own.
    let properties = unsafe { instance.get_physical_device_memory_properties(adapter.raw_physical_device()) };
    let heaps = properties.memory_heaps_as_slice().iter();
    heaps.filter(|heap| heap.flags.contains(MemoryHeapFlags::DEVICE_LOCAL)).map(|heap| heap.size).max()
}

/// Nothing, where wgpu has no Vulkan. Pages, which have no `device_specs`, don't ask.
#[cfg(not(any(
    windows,
    target_os = "linux",
    target_os = "android",
    target_os = "freebsd",
    target_family = "wasm"
)))]
pub(crate) fn device_memory(_: &wgpu::Adapter) -> Option<u64> {
    None
}

/// wgpu's permission to open a device with features that it calls experimental; here, cooperative matrices.
pub(crate) fn experimental_features() -> wgpu::ExperimentalFeatures {
    // SAFETY: Asks to acknowledge that the feature may be faulty. Each variant that uses it is compared with
    // exact results on the device before it is trusted, and a program can do without
    // (`WebGpuBackend::without_cooperative_matrices`).
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

/// An adapter that runs nothing, wgpu's `noop`, as if it had these features and limits. That `wgpu::Instance` finds one would
/// be a feature of wgpu, with which all of it would be built again.
#[cfg(test)]
pub(crate) fn noop_adapter(
    features: wgpu::Features,
    limits: wgpu::Limits,
) -> (wgpu::Instance, wgpu::Adapter) {
    use wgpu::hal::{Instance as _, noop};
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::empty();
    descriptor.flags = wgpu::InstanceFlags::empty();
    let options = &mut descriptor.backend_options.noop;
    (options.enable, options.features, options.limits) = (true, Some(features), Some(limits));
    let of_hal = wgpu::hal::InstanceDescriptor {
        name: "noop",
        flags: descriptor.flags,
        memory_budget_thresholds: descriptor.memory_budget_thresholds,
        backend_options: descriptor.backend_options.clone(),
        telemetry: None,
        display: None,
    };
    let instance = wgpu::Instance::new(descriptor);
    // SAFETY: It loads and opens nothing.
    let noop = unsafe { noop::Context::init(&of_hal) }.expect("an interface that is enabled");
    // SAFETY: No surface is given.
    let exposed = unsafe { noop.enumerate_adapters(None) }.swap_remove(0);
    // SAFETY: Of the instance, which is none of the system's, the adapter keeps all that it needs.
    let adapter = unsafe { instance.create_adapter_from_hal(exposed) };
    (instance, adapter)
}

/// A buffer of a [`noop_adapter`]'s device with no more memory than a word, whatever its size.
#[cfg(test)]
pub(crate) fn hollow_buffer(device: &wgpu::Device, descriptor: &wgpu::BufferDescriptor<'_>) -> wgpu::Buffer {
    use wgpu::hal::{BufferDescriptor, Device as _, MemoryFlags, api::Noop};
    let of_hal = BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUses::empty(),
        memory_flags: MemoryFlags::empty(),
    };
    // SAFETY: The device behind the guard is only asked for a buffer.
    let noop = unsafe { device.as_hal::<Noop>() }.expect("a device that runs nothing");
    // SAFETY: It is a part of the host's memory, and isn't mapped.
    let buffer = unsafe { noop.create_buffer(&of_hal) }.expect("a word");
    drop(noop);
    // SAFETY: It is of this device and filled with zeros. It is smaller than it says, for which `noop` looks at each access:
    // it panics past the end.
    unsafe { device.create_buffer_from_hal::<Noop>(buffer, descriptor) }
}
