//! The operations: a launcher for each family.
//!
//! A launcher checks the descriptor, plans (which kernel, which variant, which grid) and launches. It never
//! waits.

mod attention;
mod backward;
mod batch_norm;
mod binary;
mod binding;
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
mod normed_rows;
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
mod refused;
mod rope;
mod rope_append;
mod router;
mod sample;
mod scatter;
mod scratch;
mod shared;
mod softmax;
mod softmax_long;
mod state;
mod top_k;
mod transpose;
mod where_cond;

pub(crate) use attention::{KernelOverride as AttentionOverride, explain_attention};
pub(crate) use capture::Capture;
pub(crate) use conv::{KernelOverride as ConvOverride, explain_conv};
#[cfg(not(target_family = "wasm"))]
pub(crate) use copy_bytes::copy_bytes;
pub(crate) use copy_bytes::copy_htod;
pub(crate) use fill::alloc_zeroed;
#[cfg(not(target_family = "wasm"))]
pub(crate) use fill::zero_bytes;
#[cfg(not(target_family = "wasm"))]
pub(crate) use matmul::tune_matmul;
pub(crate) use matmul::{Conflict, KernelOverride as MatmulOverride, Tuning, explain_matmul, matmul};
pub(crate) use op_context::{OpContext, Trial};
pub(crate) use quant::{KernelOverride as QuantMatmulOverride, explain_quant_matmul};
pub(crate) use shared::kernel_override::KernelOverride;
pub(crate) use state::State;

use backend_api::{BackendResult, Command};

#[cfg(feature = "test-hooks")]
use crate::kernels::KernelSource;
use crate::kernels::Variant;

/// Hands a command to its launcher; `None` for one that has none.
pub(crate) fn execute(ctx: &OpContext, op: &'static str, command: Command<'_>) -> Option<BackendResult<()>> {
    Some(launch(ctx, op, command)?.map_err(|error| refused::named(ctx, &command, error)))
}

fn launch(ctx: &OpContext, op: &'static str, command: Command<'_>) -> Option<BackendResult<()>> {
    Some(match command {
        Command::Matmul(desc) => matmul::matmul(ctx, op, desc),
        Command::QuantMatmul(desc) => quant::quant_matmul(ctx, op, desc),
        Command::ExpertMatmul(desc) => quant::expert_matmul(ctx, op, desc),
        Command::QuantGather(desc) => quant::quant_gather(ctx, op, desc),
        Command::Dequantize(desc) => quant::dequantize(ctx, op, desc),
        Command::QuantizeRows(desc) => quantize_rows::quantize_rows(ctx, op, desc),
        Command::Attention(desc) => attention::attention(ctx, op, desc),
        Command::Unary(desc) => elementwise::unary(ctx, op, desc),
        Command::Binary(desc) => binary::binary(ctx, op, desc),
        Command::Compare(desc) => binary::compare(ctx, op, desc),
        Command::Where(desc) => where_cond::where_cond(ctx, op, desc),
        Command::Clamp(desc) => elementwise::clamp(ctx, op, desc),
        Command::Affine(desc) => elementwise::affine(ctx, op, desc),
        Command::Copy(desc) => copy::copy(ctx, op, desc),
        Command::Permute(desc) => movement::moved(ctx, op, desc.operands(op), [desc.input, desc.output]),
        Command::Slice(desc) => movement::moved(ctx, op, desc.operands(op), [desc.input, desc.output]),
        Command::Concat(desc) => movement::concat(ctx, op, desc),
        Command::Pad(desc) => movement::pad(ctx, op, desc),
        Command::Repeat(desc) => movement::moved(ctx, op, desc.operands(op), [desc.input, desc.output]),
        Command::Reduce(desc) => reduce::reduce(ctx, op, desc),
        Command::Softmax(desc) => softmax::softmax(ctx, op, desc),
        Command::LayerNorm(desc) => norm::layer_norm(ctx, op, desc),
        Command::RmsNorm(desc) => norm::rms_norm(ctx, op, desc),
        Command::GroupNorm(desc) => norm::group_norm(ctx, op, desc),
        Command::BatchNorm(desc) => batch_norm::batch_norm(ctx, op, desc),
        Command::CumSum(desc) => cumsum::cumsum(ctx, op, desc),
        Command::SoftmaxBackward(desc) => backward::softmax_backward(ctx, op, desc),
        Command::NormBackward(desc) => backward::norm_backward(ctx, op, desc),
        Command::NormBackwardWeight(desc) => backward::norm_backward_weight(ctx, op, desc),
        Command::Conv(desc) => conv::conv2d(ctx, op, desc),
        Command::ConvTranspose(desc) => conv::conv_transpose2d(ctx, op, desc),
        Command::ConvBackwardData(desc) => conv::conv2d_backward_data(ctx, op, desc),
        Command::ConvBackwardFilter(desc) => conv::conv2d_backward_filter(ctx, op, desc),
        Command::Pool(desc) => pool::pool2d(ctx, op, desc),
        Command::PoolBackward(desc) => pool::pool2d_backward(ctx, op, desc),
        Command::TopK(desc) => top_k::top_k(ctx, op, desc),
        Command::Sample(desc) => sample::sample(ctx, op, desc),
        Command::Rope(desc) => rope::rope(ctx, op, desc),
        Command::RopeAppend(desc) => rope_append::rope_append(ctx, op, desc),
        Command::Gather(desc) => gather::gather(ctx, op, desc),
        Command::Scatter(desc) => scatter::scatter(ctx, op, desc),
        Command::Random(desc) => random::random(ctx, op, desc),
        Command::Fill { dst, dtype, n, value } => fill::fill(ctx, op, dst, dtype, n, value),
        Command::CopyBytes { dst, src, bytes } => copy_bytes::copy_dtod(ctx, op, dst, src, bytes),
        _ => return None,
    })
}

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
        router::variants(),
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
