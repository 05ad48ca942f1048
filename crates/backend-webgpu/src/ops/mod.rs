//! The operations: a launcher for each family.
//!
//! A launcher checks the descriptor, plans (which kernel, which variant, which grid) and launches. It never
//! waits.

mod attention;
mod backward;
mod batch_norm;
mod binary;
mod capture;
mod conv;
mod copy;
mod copy_bytes;
mod cumsum;
mod elementwise;
mod fill;
mod gather;
mod gathered;
mod matmul;
mod movement;
mod norm;
mod norm_kernels;
mod op_context;
#[cfg(test)]
mod plans;
mod pool;
mod pool_axes;
mod pool_tiles;
mod quant;
mod quantize_rows;
mod random;
mod reduce;
mod reduce_parts;
mod reduce_plan;
mod reduction;
mod rope;
mod rope_append;
mod sample;
mod scatter;
mod scratch;
mod shared;
mod softmax;
mod softmax_long;
mod top_k;
mod transpose;
mod where_cond;

pub(crate) use attention::{KernelOverride as AttentionOverride, attention, explain_attention};
pub(crate) use backward::{norm_backward, norm_backward_weight, softmax_backward};
pub(crate) use batch_norm::batch_norm;
pub(crate) use binary::{binary, compare};
pub(crate) use capture::Capture;
pub(crate) use conv::{
    KernelOverride as ConvOverride, conv_transpose2d, conv2d, conv2d_backward_data, conv2d_backward_filter,
    explain_conv,
};
pub(crate) use copy::copy;
#[cfg(not(target_family = "wasm"))]
pub(crate) use copy_bytes::copy_bytes;
pub(crate) use copy_bytes::{copy_dtod, copy_htod};
pub(crate) use cumsum::cumsum;
pub(crate) use elementwise::{affine, clamp, unary};
#[cfg(not(target_family = "wasm"))]
pub(crate) use fill::zero_bytes;
pub(crate) use fill::{alloc_zeroed, fill};
pub(crate) use gather::gather;
#[cfg(not(target_family = "wasm"))]
pub(crate) use matmul::tune_matmul;
pub(crate) use matmul::{Conflict, KernelOverride as MatmulOverride, Tuning, explain_matmul, matmul};
pub(crate) use movement::{concat, pad, permute, repeat, slice};
pub(crate) use norm::{group_norm, layer_norm, rms_norm};
pub(crate) use op_context::{OpContext, State};
pub(crate) use pool::{pool2d, pool2d_backward};
pub(crate) use quant::{
    KernelOverride as QuantMatmulOverride, dequantize, expert_matmul, explain_quant_matmul, quant_gather,
    quant_matmul,
};
pub(crate) use quantize_rows::quantize_rows;
pub(crate) use random::random;
pub(crate) use reduce::reduce;
pub(crate) use rope::rope;
pub(crate) use rope_append::rope_append;
pub(crate) use sample::sample;
pub(crate) use scatter::scatter;
pub(crate) use shared::verdicts::SelfTests;
pub(crate) use softmax::softmax;
pub(crate) use top_k::top_k;
pub(crate) use where_cond::where_cond;

#[cfg(feature = "test-hooks")]
use crate::kernels::KernelSource;
use crate::kernels::Variant;

/// Every variant that the launchers can ask for.
#[cfg_attr(not(feature = "test-hooks"), allow(dead_code, reason = "for suites"))]
#[must_use]
pub fn all_variants() -> Vec<Variant> {
    [
        attention::variants(),
        backward::variants(),
        batch_norm::variants(),
        binary::variants(),
        conv::variants(),
        copy::variants(),
        copy_bytes::variants(),
        cumsum::variants(),
        elementwise::variants(),
        fill::variants(),
        gather::variants(),
        shared::iterations::variants(),
        matmul::variants(),
        norm::variants(),
        pool::variants(),
        quant::variants(),
        quantize_rows::variants(),
        random::variants(),
        reduce::variants(),
        rope::variants(),
        rope_append::variants(),
        sample::variants(),
        top_k::variants(),
        scatter::variants(),
        softmax::variants(),
        softmax_long::variants(),
        transpose::variants(),
        where_cond::variants(),
    ]
    .concat()
}

/// The WGSL file of the kernel that `force_matmul` takes by a name.
#[cfg(feature = "test-hooks")]
#[must_use]
pub fn matmul_source(name: &str) -> Option<&'static KernelSource> {
    MatmulOverride::parse("matmul_source", name).ok().map(MatmulOverride::source)
}

/// The WGSL file of the kernel that `force_attention` takes by a name.
#[cfg(feature = "test-hooks")]
#[must_use]
pub fn attention_source(name: &str) -> Option<&'static KernelSource> {
    AttentionOverride::parse("attention_source", name).ok().map(AttentionOverride::source)
}

/// The WGSL file of the kernel that `force_conv` takes by a name.
#[cfg(feature = "test-hooks")]
#[must_use]
pub fn conv_source(name: &str) -> Option<&'static KernelSource> {
    ConvOverride::parse("conv_source", name).ok().and_then(ConvOverride::source)
}

/// Whether a device has room for workgroups of so many invocations, with so many bytes of memory.
fn has_room(limits: &wgpu::Limits, invocations: usize, bytes: usize) -> bool {
    invocations <= limits.max_compute_invocations_per_workgroup as usize
        && invocations <= limits.max_compute_workgroup_size_x as usize
        && bytes <= limits.max_compute_workgroup_storage_size as usize
}
