//! The operations, one file for each family, and which of them a command goes to.

mod attention;
mod backward;
mod conv;
mod conv_filter;
mod copy;
mod cumsum;
mod elementwise;
mod experts;
mod fold;
mod gather;
mod matmul;
pub(crate) mod matrix;
mod movement;
mod norm;
mod padding;
mod paged;
mod pointwise;
mod pool;
mod quant;
mod quant_int8;
mod quantize_rows;
mod random;
mod reduce;
mod rope;
mod rope_append;
mod sample;
mod shifted;
mod softmax;
mod top_k;

use backend_api::{BackendResult, Command};

use crate::memory::Memory;

/// Makes a command's operation; `None` for one that isn't known.
pub(crate) fn execute(memory: &Memory, op: &'static str, command: Command<'_>) -> Option<BackendResult<()>> {
    Some(match command {
        Command::Matmul(desc) => matmul::matmul(memory, op, desc),
        Command::QuantMatmul(desc) => quant::quant_matmul(memory, op, desc),
        Command::ExpertMatmul(desc) => experts::expert_matmul(memory, op, desc),
        Command::QuantGather(desc) => quant::quant_gather(memory, op, desc),
        Command::Dequantize(desc) => quant::dequantize(memory, op, desc),
        Command::QuantizeRows(desc) => quantize_rows::quantize_rows(memory, op, desc),
        Command::Attention(desc) => attention::attention(memory, op, desc),
        Command::Unary(desc) => elementwise::unary(memory, op, desc),
        Command::Binary(desc) => elementwise::binary(memory, op, desc),
        Command::Compare(desc) => pointwise::compare(memory, op, desc),
        Command::Where(desc) => pointwise::where_cond(memory, op, desc),
        Command::Clamp(desc) => pointwise::clamp(memory, op, desc),
        Command::Affine(desc) => pointwise::affine(memory, op, desc),
        Command::Copy(desc) => copy::copy(memory, op, desc),
        Command::Permute(desc) => movement::moved(memory, op, desc.operands(op), [desc.input, desc.output]),
        Command::Slice(desc) => movement::moved(memory, op, desc.operands(op), [desc.input, desc.output]),
        Command::Concat(desc) => movement::concat(memory, op, desc),
        Command::Pad(desc) => movement::pad(memory, op, desc),
        Command::Repeat(desc) => movement::moved(memory, op, desc.operands(op), [desc.input, desc.output]),
        Command::Reduce(desc) => reduce::reduce(memory, op, desc),
        Command::Softmax(desc) => softmax::softmax(memory, op, desc),
        Command::LayerNorm(desc) => norm::layer_norm(memory, op, desc),
        Command::RmsNorm(desc) => norm::rms_norm(memory, op, desc),
        Command::GroupNorm(desc) => norm::group_norm(memory, op, desc),
        Command::BatchNorm(desc) => norm::batch_norm(memory, op, desc),
        Command::CumSum(desc) => cumsum::cumsum(memory, op, desc),
        Command::SoftmaxBackward(desc) => backward::softmax_backward(memory, op, desc),
        Command::NormBackward(desc) => backward::norm_backward(memory, op, desc),
        Command::NormBackwardWeight(desc) => backward::norm_backward_weight(memory, op, desc),
        Command::Conv(desc) => conv::conv2d(memory, op, desc),
        Command::ConvTranspose(desc) => conv::conv_transpose2d(memory, op, desc),
        Command::ConvBackwardData(desc) => conv::backward_data(memory, op, desc),
        Command::ConvBackwardFilter(desc) => conv_filter::backward_filter(memory, op, desc),
        Command::Pool(desc) => pool::pool2d(memory, op, desc),
        Command::PoolBackward(desc) => pool::pool2d_backward(memory, op, desc),
        Command::TopK(desc) => top_k::top_k(memory, op, desc),
        Command::Sample(desc) => sample::sample(memory, op, desc),
        Command::Rope(desc) => rope::rope(memory, op, desc),
        Command::RopeAppend(desc) => rope_append::rope_append(memory, op, desc),
        Command::Gather(desc) => gather::gather(memory, op, desc),
        Command::Scatter(desc) => gather::scatter(memory, op, desc),
        Command::Random(desc) => random::random(memory, op, desc),
        Command::Fill { dst, dtype, n, value } => copy::fill(memory, op, dst, dtype, n, value),
        Command::CopyBytes { dst, src, bytes } => copy::copy_bytes(memory, op, dst, src, bytes),
        _ => return None,
    })
}
