//! Whether an adapter has tensor cores that the kernels can use.

use wgpu::{CooperativeMatrixProperties, CooperativeScalarType, Features};

/// Invocations of a subgroup, as lib/fragments assumes.
const SUBGROUP: u32 = 32;

/// Rows, columns and depth of the matrices that WGSL can name.
const FRAGMENT: u32 = 16;

/// Whether the adapter multiplies 16×16 matrices of f16 with sums of f32, in subgroups of 32.
pub(crate) fn has_cooperative_matrices(adapter: &wgpu::Adapter) -> bool {
    let info = adapter.get_info();
    adapter.features().contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX | Features::SHADER_F16)
        && [info.subgroup_min_size, info.subgroup_max_size] == [SUBGROUP; 2]
        && adapter.cooperative_matrix_properties().iter().any(is_usable)
}

fn is_usable(shape: &CooperativeMatrixProperties) -> bool {
    [shape.m_size, shape.n_size, shape.k_size] == [FRAGMENT; 3]
        && matches!(shape.ab_type, CooperativeScalarType::F16)
        && matches!(shape.cr_type, CooperativeScalarType::F32)
}
