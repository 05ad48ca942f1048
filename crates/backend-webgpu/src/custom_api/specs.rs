//! What a device is and has.

use std::collections::BTreeMap;

use backend_api::desc::{
    AttentionDesc, AttentionShape, ConvDesc, ConvShape, ImageShape, MatmulDesc, Matrix, Window,
};
use backend_api::{BackendResult, ComputeBackend as _, DType};

use crate::WebGpuBackend;
use crate::custom::{MAX_PARAM_BYTES, MAX_STORAGE_BINDINGS};
use crate::unchecked::device_memory;

/// Everything that is known of a device: what a kernel may use, and what the built-in ones do.
///
/// WebGPU doesn't tell how much memory a device has, how many compute units, or how fast it is. Vulkan tells the
/// memory, and its drivers of NVIDIA and AMD tell compute units.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DeviceSpecs {
    /// The name that selects it in a registry, such as `"webgpu:1"`.
    pub selector: String,
    /// The device's own name.
    pub name: String,
    /// The interface through which it is driven, such as `"Vulkan"`.
    pub api: String,
    /// The driver's name and version, empty where it doesn't tell.
    pub driver: String,
    /// What kind of hardware it is, such as `"DiscreteGpu"`.
    pub kind: String,
    /// The PCI numbers of vendor and device, 0 where the interface doesn't tell.
    pub pci: [u32; 2],
    /// Features that the device was opened with, and kernels may use.
    pub features: Vec<String>,
    /// Features that the adapter has besides, which a device given to
    /// [`from_wgpu`](WebGpuBackend::from_wgpu) may have.
    pub other_features: Vec<String>,
    /// Every limit of WebGPU and wgpu by its name there, such as `"max_compute_workgroup_storage_size"`.
    pub limits: BTreeMap<&'static str, u64>,
    /// Invocations of the smallest and of the largest subgroup; 0 where the driver doesn't tell.
    pub subgroup_sizes: [u32; 2],
    /// Compute units (streaming multiprocessors), for which kernels and splits are planned.
    pub compute_units: usize,
    /// Where their number is from: `"driver"`, `"tuning"` ([`set_tuning`](WebGpuBackend::set_tuning)), or
    /// `"guess"`, which is what is usual for this kind of hardware.
    pub compute_units_from: &'static str,
    /// Shapes and types of cooperative matrices, of which WGSL can write 8×8 and 16×16.
    pub cooperative_matrices: Vec<CooperativeMatrix>,
    /// Whether device time can be measured.
    pub timestamps: bool,
    /// Bytes of parameters of a kernel of one's own, at most.
    pub max_param_bytes: usize,
    /// Storage buffers of a kernel of one's own, at most.
    pub max_storage_bindings: usize,
    /// Bytes of the device's memory, its largest heap; on software adapters the system's. `None` where the interface
    /// doesn't tell, which Vulkan alone does.
    pub memory: Option<u64>,
    /// Bytes of the backend's own allocations now.
    pub memory_in_use: usize,
    /// Bytes that the backend keeps for reuse now.
    pub memory_pooled: usize,
    /// What some built-in operations use here.
    pub built_in: Vec<BuiltIn>,
}

/// A product of fragments that the device has an instruction for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CooperativeMatrix {
    /// Rows of A and C, columns of B and C, columns of A and rows of B.
    pub shape: [u32; 3],
    /// The type of A and B, such as `"F16"`.
    pub inputs: String,
    /// The type of C and of the sums.
    pub sums: String,
}

/// The kernel of a built-in operation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BuiltIn {
    /// The operation with its shape.
    pub operation: String,
    /// What it would use, as [`explain_matmul`](WebGpuBackend::explain_matmul) and the like say it, or why it
    /// can't be done here.
    pub kernel: String,
}

impl WebGpuBackend {
    /// Everything that is known of the device.
    ///
    /// # Errors
    /// [`NotInitialized`](backend_api::BackendError::NotInitialized),
    /// [`DeviceLost`](backend_api::BackendError::DeviceLost).
    pub fn device_specs(&self) -> BackendResult<DeviceSpecs> {
        let call = self.context("device_specs")?;
        let gpu = &call.device().gpu;
        let (adapter, info, profile) = (gpu.adapter.get_info(), &gpu.info, call.context.profile());
        let features = gpu.device.features();
        let memory = self.memory_stats();
        let cooperative = features.contains(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);
        let matrices = if cooperative { gpu.adapter.cooperative_matrix_properties() } else { Vec::new() };
        Ok(DeviceSpecs {
            selector: info.selector.clone(),
            name: info.name.clone(),
            api: info.api.clone(),
            driver: info.driver.clone(),
            kind: format!("{:?}", info.kind),
            pci: [adapter.vendor, adapter.device],
            features: names(features),
            other_features: names(gpu.adapter.features() - features),
            limits: limits(&gpu.limits),
            subgroup_sizes: [adapter.subgroup_min_size, adapter.subgroup_max_size],
            compute_units: profile.compute_units,
            compute_units_from: profile.compute_units_from(),
            cooperative_matrices: matrices.iter().map(cooperative_matrix).collect(),
            timestamps: features.contains(wgpu::Features::TIMESTAMP_QUERY),
            max_param_bytes: MAX_PARAM_BYTES,
            max_storage_bindings: MAX_STORAGE_BINDINGS,
            memory: device_memory(&gpu.adapter),
            memory_in_use: memory.in_use,
            memory_pooled: memory.pooled,
            built_in: self.built_in(),
        })
    }

    /// The kernels of some typical operations.
    fn built_in(&self) -> Vec<BuiltIn> {
        let product = |m: usize, n: usize, k: usize, dtype: DType| {
            let matrix = |ptr, columns| Matrix::new(ptr, dtype, columns);
            let kernel = self.with_memory([m * k, k * n, m * n].map(|n| n * dtype.size()), |[a, b, c]| {
                self.explain_matmul(&MatmulDesc::new(m, n, k, matrix(a, k), matrix(b, n), matrix(c, n)))
            });
            (format!("matmul {dtype} {m}×{n}×{k}"), kernel)
        };
        let attention = |queries: usize, keys: usize, dtype: DType| {
            let (heads, dim) = (8, 64);
            let bytes = [queries, keys, keys, queries].map(|rows| heads * rows * dim * dtype.size());
            let shape = AttentionShape { batch: 1, heads, seq_q: queries, seq_kv: keys, head_dim: dim };
            let kernel = self.with_memory(bytes, |[q, k, v, o]| {
                self.explain_attention(&AttentionDesc::new(dtype, q, k, v, o, shape))
            });
            (format!("attention {dtype} {queries} queries, {keys} keys, {heads} heads of {dim}"), kernel)
        };
        let conv = |side: usize, dtype: DType| {
            let (channels, extent) = (64, 56);
            let image = ImageShape::nchw([1, channels, extent, extent]);
            let shape = ConvShape::new(image, channels, Window::new([side; 2]).with_padding([side / 2; 2]));
            let elements = channels * extent * extent;
            let bytes = [elements, channels * channels * side * side, elements].map(|n| n * dtype.size());
            let kernel = self.with_memory(bytes, |[input, filter, output]| {
                self.explain_conv(&ConvDesc::new(dtype, input, filter, output, shape))
            });
            (
                format!("conv {dtype} {side}×{side}, {channels} channels of {extent}×{extent} to {channels}"),
                kernel,
            )
        };
        let operations = [
            product(1024, 1024, 1024, DType::F32),
            product(1024, 1024, 1024, DType::F16),
            product(1, 1024, 1024, DType::F32),
            product(1, 1024, 1024, DType::F16),
            attention(256, 256, DType::F32),
            attention(256, 256, DType::F16),
            attention(1, 1024, DType::F32),
            conv(3, DType::F32),
            conv(3, DType::F16),
            conv(1, DType::F32),
        ];
        operations
            .into_iter()
            .map(|(operation, kernel)| BuiltIn {
                operation,
                kernel: kernel.unwrap_or_else(|error| error.to_string()),
            })
            .collect()
    }

    fn with_memory<T, const N: usize>(
        &self,
        bytes: [usize; N],
        work: impl FnOnce([u64; N]) -> BackendResult<T>,
    ) -> BackendResult<T> {
        let mut handles = [0; N];
        let allocated = handles.iter_mut().zip(bytes).try_for_each(|(handle, bytes)| {
            *handle = self.alloc(bytes)?;
            Ok(())
        });
        let value = allocated.and_then(|()| work(handles));
        let freed =
            handles.into_iter().filter(|&handle| handle != 0).try_for_each(|handle| self.free(handle));
        freed.and(value)
    }
}

fn names(features: wgpu::Features) -> Vec<String> {
    features.iter_names().map(|(name, _)| name.to_owned()).collect()
}

fn cooperative_matrix(properties: &wgpu::CooperativeMatrixProperties) -> CooperativeMatrix {
    CooperativeMatrix {
        shape: [properties.m_size, properties.n_size, properties.k_size],
        inputs: format!("{:?}", properties.ab_type),
        sums: format!("{:?}", properties.cr_type),
    }
}

/// Names the fields of the limits: all of them, or it doesn't compile.
macro_rules! by_name {
    ($limits:expr, $($field:ident),+ $(,)?) => {{
        let wgpu::Limits { $($field),+ } = $limits;
        BTreeMap::from([$((stringify!($field), u64::from(*$field))),+])
    }};
}

fn limits(limits: &wgpu::Limits) -> BTreeMap<&'static str, u64> {
    by_name!(
        limits,
        max_texture_dimension_1d,
        max_texture_dimension_2d,
        max_texture_dimension_3d,
        max_texture_array_layers,
        max_bind_groups,
        max_bind_groups_plus_vertex_buffers,
        max_bindings_per_bind_group,
        max_dynamic_uniform_buffers_per_pipeline_layout,
        max_dynamic_storage_buffers_per_pipeline_layout,
        max_sampled_textures_per_shader_stage,
        max_samplers_per_shader_stage,
        max_storage_buffers_per_shader_stage,
        max_storage_textures_per_shader_stage,
        max_uniform_buffers_per_shader_stage,
        max_binding_array_elements_per_shader_stage,
        max_binding_array_acceleration_structure_elements_per_shader_stage,
        max_binding_array_sampler_elements_per_shader_stage,
        max_uniform_buffer_binding_size,
        max_storage_buffer_binding_size,
        max_vertex_buffers,
        max_buffer_size,
        max_vertex_attributes,
        max_vertex_buffer_array_stride,
        max_inter_stage_shader_variables,
        min_uniform_buffer_offset_alignment,
        min_storage_buffer_offset_alignment,
        max_color_attachments,
        max_color_attachment_bytes_per_sample,
        max_compute_workgroup_storage_size,
        max_compute_invocations_per_workgroup,
        max_compute_workgroup_size_x,
        max_compute_workgroup_size_y,
        max_compute_workgroup_size_z,
        max_compute_workgroups_per_dimension,
        max_immediate_size,
        max_non_sampler_bindings,
        max_task_workgroup_total_count,
        max_task_workgroups_per_dimension,
        max_mesh_workgroup_total_count,
        max_mesh_workgroups_per_dimension,
        max_task_invocations_per_workgroup,
        max_task_invocations_per_dimension,
        max_mesh_invocations_per_workgroup,
        max_mesh_invocations_per_dimension,
        max_task_payload_size,
        max_mesh_output_vertices,
        max_mesh_output_primitives,
        max_mesh_output_layers,
        max_mesh_multiview_view_count,
        max_blas_primitive_count,
        max_blas_geometry_count,
        max_tlas_instance_count,
        max_acceleration_structures_per_shader_stage,
        max_buffers_and_acceleration_structures_per_shader_stage,
        max_multiview_view_count,
        max_ray_dispatch_count,
        max_ray_recursion_depth,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compute_units_are_the_drivers_then_the_tunings() {
        let backend = WebGpuBackend::open().unwrap();
        let specs = || backend.device_specs().unwrap();
        let units = || (specs().compute_units, specs().compute_units_from);
        let DeviceSpecs { name, api, kind, .. } = specs();
        let first = units();
        println!("{name}, {api}, {kind}: {first:?}");
        assert!(first.0 > 0 && first.1 != "tuning");
        if api == "Vulkan" && name.contains("NVIDIA") {
            assert_eq!(first.1, "driver");
        }
        if kind == "SoftwareAdapter" {
            assert_eq!(first, (1, "guess"));
        }
        let text = backend.tuning().unwrap();
        assert_eq!(backend.set_tuning(&(text.clone() + "compute_units = 7\n")).unwrap(), 0, "no products");
        let expected = if first.1 == "driver" { first } else { (7, "tuning") };
        assert_eq!(units(), expected);
        assert_eq!(backend.tuning().unwrap(), text + "compute_units = 7\n");
    }
}
