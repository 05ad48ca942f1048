//! What the operations must give: computed in f64, written for clarity, with the bound of each element.
//!
//! [`expected()`] gives a command and the bytes of its operands to them.
//!
//! Bounds count roundings in [`gamma`](crate::float::gamma) and hold for every order of summation.

pub(crate) mod attention;
pub(crate) mod binary;
pub(crate) mod conv;
pub(crate) mod convert;
pub(crate) mod cumsum;
pub(crate) mod elementwise;
mod expected;
pub(crate) mod experts;
pub(crate) mod norm;
pub(crate) mod pool;
pub(crate) mod product;
pub(crate) mod q8_0;
pub(crate) mod quant;
pub(crate) mod reduce;
pub(crate) mod rope;
pub(crate) mod sample;
pub(crate) mod scatter;
pub(crate) mod softmax;
pub(crate) mod unary;

use backend_api::{BackendResult, Command, DType};

pub use expected::Bytes;
pub(crate) use expected::Expected;

/// The outputs of a command on memory as it was before the call.
pub(crate) fn expected(
    op: &'static str,
    command: &Command<'_>,
    memory: &Bytes,
) -> BackendResult<Vec<Expected>> {
    Ok(match command {
        Command::Unary(desc) => vec![unary::expect_unary(op, desc, memory)?],
        Command::Binary(desc) => vec![binary::expect_binary(op, desc, memory)?],
        Command::Compare(desc) => vec![binary::expect_compare(op, desc, memory)?],
        Command::Clamp(desc) => vec![elementwise::expect_clamp(op, desc, memory)?],
        Command::Affine(desc) => vec![elementwise::expect_affine(op, desc, memory)?],
        Command::Softmax(desc) => vec![softmax::expect_softmax(desc, memory)],
        Command::LayerNorm(desc) => norm::expect_layer_norm(desc, memory),
        Command::RmsNorm(desc) => norm::expect_rms_norm(desc, memory),
        Command::GroupNorm(desc) => vec![norm::expect_group_norm(desc, memory)],
        Command::BatchNorm(desc) => vec![norm::expect_batch_norm(desc, memory)],
        Command::SoftmaxBackward(desc) => vec![softmax::expect_softmax_backward(desc, memory)],
        Command::NormBackward(desc) => vec![norm::expect_norm_backward(desc, memory)],
        Command::NormBackwardWeight(desc) => vec![norm::expect_norm_backward_weight(desc, memory)],
        Command::CumSum(desc) => vec![cumsum::expect_cumsum(desc, memory)],
        Command::Reduce(desc) => vec![reduce::expect_reduce(op, desc, memory)?],
        Command::Matmul(desc) => vec![product::expect_matmul(desc, memory)],
        Command::QuantMatmul(desc) => vec![quant::expect_quant_matmul(op, desc, memory)?],
        Command::ExpertMatmul(desc) => vec![experts::expect_expert_matmul(op, desc, memory)?],
        Command::Conv(desc) => vec![conv::expect_conv(desc, memory)],
        Command::ConvTranspose(desc) => vec![conv::expect_conv_transpose(op, desc, memory)?],
        Command::ConvBackwardData(desc) => vec![conv::expect_conv_backward_data(desc, memory)],
        Command::ConvBackwardFilter(desc) => vec![conv::expect_conv_backward_filter(desc, memory)],
        Command::Pool(desc) => vec![pool::expect_pool(desc, memory)],
        Command::PoolBackward(desc) => vec![pool::expect_pool_backward(desc, memory)],
        Command::Attention(desc) => attention::expect_attention(desc, memory),
        Command::Rope(desc) => vec![rope::expect_rope(desc, memory)],
        Command::RopeAppend(desc) => rope::expect_rope_append(desc, memory),
        Command::Scatter(desc) => vec![scatter::expect_scatter(desc, memory)],
        Command::Sample(desc) => vec![sample::expect_sample(desc, memory)],
        Command::QuantGather(desc) => vec![Expected::exact(desc.output, desc.dtype)],
        Command::Dequantize(desc) => vec![Expected::exact(desc.output.ptr, desc.output.dtype)],
        Command::Where(desc) => vec![Expected::moved(desc.output.ptr, desc.output.dtype, desc.output.dtype)],
        Command::Copy(desc) => vec![Expected::moved(desc.dst.ptr, desc.dst.dtype, desc.src.dtype)],
        Command::Permute(desc) => {
            vec![Expected::moved(desc.output.ptr, desc.output.dtype, desc.input.dtype)]
        }
        Command::Slice(desc) => vec![Expected::moved(desc.output.ptr, desc.output.dtype, desc.input.dtype)],
        Command::Pad(desc) => vec![Expected::moved(desc.output.ptr, desc.output.dtype, desc.input.dtype)],
        Command::Repeat(desc) => vec![Expected::moved(desc.output.ptr, desc.output.dtype, desc.input.dtype)],
        Command::Concat(desc) => {
            let to = desc.output.dtype;
            let from = desc.inputs.iter().map(|input| input.dtype).find(|&from| from != to).unwrap_or(to);
            vec![Expected::moved(desc.output.ptr, to, from)]
        }
        Command::Gather(desc) => vec![Expected::moved(desc.output, desc.dtype, desc.dtype)],
        Command::TopK(desc) => {
            let values = desc.values.map(|ptr| match desc.softmax {
                Some(over) => softmax::expect_probabilities(desc, over, ptr, memory),
                None => Expected::moved(ptr, desc.dtype, desc.dtype),
            });
            values.into_iter().chain([Expected::exact(desc.indices, DType::I32)]).collect()
        }
        Command::Random(desc) => vec![Expected::exact(desc.output, desc.dtype)],
        &Command::Fill { dst, dtype, .. } => vec![Expected::moved(dst, dtype, dtype)],
        // Bytes, and what a later version adds: bit by bit.
        _ => Vec::new(),
    })
}
