//! The few `unsafe` calls of this crate.
#![allow(unsafe_code, reason = "wgpu marks these calls unsafe; each says below why it is sound here")]

#[cfg(not(target_family = "wasm"))]
use crate::kernels::Spirv;

/// Compiles a kernel of shaders/ without run-time checks in the shader.
///
/// The checks would clamp every index and count the turns of every loop, which costs up to half of a kernel's speed.
pub(crate) fn shader_module(device: &wgpu::Device, label: &str, wgsl: String) -> wgpu::ShaderModule {
    let descriptor =
        wgpu::ShaderModuleDescriptor { label: Some(label), source: wgpu::ShaderSource::Wgsl(wgsl.into()) };
    // SAFETY: Only the crate's own kernels come here. Their indices stay inside the bindings because every operand's
    // size is checked before a launch, and their loops have bounds that they don't change; the conformance suite
    // runs each of them with guards on both sides of every operand.
    unsafe { device.create_shader_module_trusted(descriptor, wgpu::ShaderRuntimeChecks::unchecked()) }
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
    // SAFETY: The words come from naga, whose validator has accepted the crate's own text, and differ from what wgpu
    // would make of it by hints and, in kernels that say so, by accesses to the first eight elements of matrices of 256,
    // which subgroups of 32 share. The suite `shaders` compares the text's bindings with the layout. The device has been
    // opened for SPIR-V and what the text needs, or `Pipelines` would not ask. For indices and loops see `shader_module`.
    unsafe { device.create_shader_module_passthrough(descriptor) }
}

/// wgpu's permission to open a device with features that it calls experimental; here, cooperative matrices.
pub(crate) fn experimental_features() -> wgpu::ExperimentalFeatures {
    // SAFETY: Asks to acknowledge that the feature may be faulty. Each variant that uses it is compared with exact results
    // on the device before it is trusted, and a program can do without
    // (`WebGpuBackend::without_cooperative_matrices`).
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}
