//! The operations, one file for each family, and which of them a command goes to.

mod attention;
mod backward;
mod conv;
mod conv_filter;
mod copy;
mod cumsum;
mod elementwise;
mod experts;
mod few_rows;
mod fold;
mod gather;
mod int8;
mod matmul;
pub(crate) mod matrix;
mod movement;
mod norm;
mod padding;
mod paged;
mod pointwise;
mod pool;
mod quant;
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

use crate::access::Call;

/// Random numbers of 24 bits for tests, by a linear congruential generator.
#[cfg(test)]
fn noise() -> impl FnMut() -> u32 {
    let mut state = 1u32;
    move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    }
}

/// Makes a command's operation; `None` for one that isn't known.
pub(crate) fn execute(call: Call<'_>, command: Command<'_>) -> Option<BackendResult<()>> {
    Some(match command {
        Command::Matmul(desc) => matmul::matmul(call, desc),
        Command::QuantMatmul(desc) => quant::quant_matmul(call, desc),
        Command::ExpertMatmul(desc) => experts::expert_matmul(call, desc),
        Command::QuantGather(desc) => quant::quant_gather(call, desc),
        Command::Dequantize(desc) => quant::dequantize(call, desc),
        Command::QuantizeRows(desc) => quantize_rows::quantize_rows(call, desc),
        Command::Attention(desc) => attention::attention(call, desc),
        Command::Unary(desc) => elementwise::unary(call, desc),
        Command::Binary(desc) => elementwise::binary(call, desc),
        Command::Compare(desc) => pointwise::compare(call, desc),
        Command::Where(desc) => pointwise::where_cond(call, desc),
        Command::Clamp(desc) => pointwise::clamp(call, desc),
        Command::Affine(desc) => pointwise::affine(call, desc),
        Command::Copy(desc) => copy::copy(call, desc),
        Command::Permute(desc) => movement::moved(call, desc.operands(call.op), [desc.input, desc.output]),
        Command::Slice(desc) => movement::moved(call, desc.operands(call.op), [desc.input, desc.output]),
        Command::Concat(desc) => movement::concat(call, desc),
        Command::Pad(desc) => movement::pad(call, desc),
        Command::Repeat(desc) => movement::moved(call, desc.operands(call.op), [desc.input, desc.output]),
        Command::Reduce(desc) => reduce::reduce(call, desc),
        Command::Softmax(desc) => softmax::softmax(call, desc),
        Command::LayerNorm(desc) => norm::layer_norm(call, desc),
        Command::RmsNorm(desc) => norm::rms_norm(call, desc),
        Command::GroupNorm(desc) => norm::group_norm(call, desc),
        Command::BatchNorm(desc) => norm::batch_norm(call, desc),
        Command::CumSum(desc) => cumsum::cumsum(call, desc),
        Command::SoftmaxBackward(desc) => backward::softmax_backward(call, desc),
        Command::NormBackward(desc) => backward::norm_backward(call, desc),
        Command::NormBackwardWeight(desc) => backward::norm_backward_weight(call, desc),
        Command::Conv(desc) => conv::conv2d(call, desc),
        Command::ConvTranspose(desc) => conv::conv_transpose2d(call, desc),
        Command::ConvBackwardData(desc) => conv::backward_data(call, desc),
        Command::ConvBackwardFilter(desc) => conv_filter::backward_filter(call, desc),
        Command::Pool(desc) => pool::pool2d(call, desc),
        Command::PoolBackward(desc) => pool::pool2d_backward(call, desc),
        Command::TopK(desc) => top_k::top_k(call, desc),
        Command::Sample(desc) => sample::sample(call, desc),
        Command::Rope(desc) => rope::rope(call, desc),
        Command::RopeAppend(desc) => rope_append::rope_append(call, desc),
        Command::Gather(desc) => gather::gather(call, desc),
        Command::Scatter(desc) => gather::scatter(call, desc),
        Command::Random(desc) => random::random(call, desc),
        Command::Fill { dst, dtype, n, value } => copy::fill(call, dst, dtype, n, value),
        Command::CopyBytes { dst, src, bytes } => copy::copy_bytes(call, dst, src, bytes),
        _ => return None,
    })
}
