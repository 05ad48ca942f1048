//! Operations on other handles, and the memory that an operation touches.

use crate::desc::{AttentionMask, Bias, ConcatDesc, Matrix, RepetitionPenalty, RmsNorm, TensorDesc, Value};
use crate::support::{Access, Operand};
use crate::{BackendResult, Command};

/// Calls `$then` with a copy of a descriptor whose fields, some of them optional, name other handles.
macro_rules! rebound {
    ($desc:ident, $map:ident, $then:ident, $variant:ident,
     [$($($field:ident).+),*], [$($optional:ident),*]) => {{
        let mut desc = *$desc;
        $(desc.$($field).+ = $map(desc.$($field).+);)*
        $(desc.$optional = desc.$optional.map(&mut *$map);)*
        $then(Command::$variant(&desc))
    }};
}

impl Command<'_> {
    /// Hands `then` this operation with `map` of each of its handles, for a backend that keeps others than its
    /// callers.
    ///
    /// A handle of which nothing is touched may be any number, and so may what `map` makes of it.
    pub fn with_handles<R>(self, map: &mut dyn FnMut(u64) -> u64, then: impl FnOnce(Command<'_>) -> R) -> R {
        match self {
            Command::Matmul(desc) => {
                let mut desc = *desc;
                desc.bias = desc.bias.map(|bias| Bias { ptr: map(bias.ptr), ..bias });
                let desc = &desc;
                rebound!(desc, map, then, Matmul, [a.ptr, b.ptr, c.ptr], [])
            }
            Command::QuantMatmul(desc) => {
                let mut desc = *desc;
                desc.residual = desc.residual.map(|matrix| Matrix { ptr: map(matrix.ptr), ..matrix });
                desc.norm = desc.norm.map(|norm| RmsNorm { weight: map(norm.weight), ..norm });
                let desc = &desc;
                rebound!(desc, map, then, QuantMatmul, [a.ptr, b.ptr, c.ptr], [bias])
            }
            Command::Attention(desc) => {
                let mut desc = *desc;
                desc.mask = desc.mask.map(|mask| AttentionMask { ptr: map(mask.ptr), ..mask });
                let desc = &desc;
                rebound!(desc, map, then, Attention, [q, k, v, o], [key_lengths, lse])
            }
            Command::Binary(desc) => {
                let mut desc = *desc;
                (desc.a, desc.b) = (value(desc.a, map), value(desc.b, map));
                let desc = &desc;
                rebound!(desc, map, then, Binary, [output.ptr], [])
            }
            Command::Compare(desc) => {
                let mut desc = *desc;
                (desc.a, desc.b) = (value(desc.a, map), value(desc.b, map));
                let desc = &desc;
                rebound!(desc, map, then, Compare, [output.ptr], [])
            }
            Command::Where(desc) => {
                let mut desc = *desc;
                (desc.a, desc.b) = (value(desc.a, map), value(desc.b, map));
                let desc = &desc;
                rebound!(desc, map, then, Where, [condition.ptr, output.ptr], [])
            }
            Command::Concat(desc) => {
                let inputs: Vec<_> = desc.inputs.iter().map(|&input| tensor(input, map)).collect();
                let desc = ConcatDesc { inputs: &inputs, output: tensor(desc.output, map), axis: desc.axis };
                then(Command::Concat(&desc))
            }
            Command::Sample(desc) => {
                let mut desc = *desc;
                desc.repetition = desc
                    .repetition
                    .map(|repetition| RepetitionPenalty { window: map(repetition.window), ..repetition });
                let desc = &desc;
                rebound!(desc, map, then, Sample, [logits, tokens], [offset_ptr])
            }
            Command::Fill { dst, dtype, n, value } => then(Command::Fill { dst: map(dst), dtype, n, value }),
            Command::CopyBytes { dst, src, bytes } => {
                then(Command::CopyBytes { dst: map(dst), src: map(src), bytes })
            }
            Command::QuantGather(desc) => {
                rebound!(desc, map, then, QuantGather, [table.ptr, indices, output], [])
            }
            Command::Dequantize(desc) => rebound!(desc, map, then, Dequantize, [input.ptr, output.ptr], []),
            Command::Unary(desc) => rebound!(desc, map, then, Unary, [input.ptr, output.ptr], []),
            Command::Clamp(desc) => rebound!(desc, map, then, Clamp, [input.ptr, output.ptr], []),
            Command::Affine(desc) => rebound!(desc, map, then, Affine, [input.ptr, output.ptr], []),
            Command::Copy(desc) => rebound!(desc, map, then, Copy, [src.ptr, dst.ptr], []),
            Command::Permute(desc) => rebound!(desc, map, then, Permute, [input.ptr, output.ptr], []),
            Command::Slice(desc) => rebound!(desc, map, then, Slice, [input.ptr, output.ptr], []),
            Command::Pad(desc) => rebound!(desc, map, then, Pad, [input.ptr, output.ptr], []),
            Command::Repeat(desc) => rebound!(desc, map, then, Repeat, [input.ptr, output.ptr], []),
            Command::Reduce(desc) => rebound!(desc, map, then, Reduce, [input.ptr, output], []),
            Command::Softmax(desc) => rebound!(desc, map, then, Softmax, [input, output], []),
            Command::LayerNorm(desc) => {
                rebound!(desc, map, then, LayerNorm, [input, output], [weight, bias, residual, sum])
            }
            Command::RmsNorm(desc) => {
                rebound!(desc, map, then, RmsNorm, [input, output], [weight, residual, sum])
            }
            Command::GroupNorm(desc) => rebound!(desc, map, then, GroupNorm, [input, output], [weight, bias]),
            Command::BatchNorm(desc) => {
                rebound!(desc, map, then, BatchNorm, [input, output, mean, variance], [weight, bias])
            }
            Command::CumSum(desc) => rebound!(desc, map, then, CumSum, [input, output], []),
            Command::SoftmaxBackward(desc) => {
                rebound!(desc, map, then, SoftmaxBackward, [y, grad_output, grad_input], [])
            }
            Command::NormBackward(desc) => {
                rebound!(desc, map, then, NormBackward, [x, grad_output, grad_input], [weight])
            }
            Command::NormBackwardWeight(desc) => {
                rebound!(desc, map, then, NormBackwardWeight, [x, grad_output, grad_weight], [])
            }
            Command::Conv(desc) => rebound!(desc, map, then, Conv, [input, filter, output], [bias]),
            Command::ConvTranspose(desc) => {
                rebound!(desc, map, then, ConvTranspose, [input, filter, output], [bias])
            }
            Command::ConvBackwardData(desc) => {
                rebound!(desc, map, then, ConvBackwardData, [filter, grad_output, grad_input], [])
            }
            Command::ConvBackwardFilter(desc) => {
                rebound!(desc, map, then, ConvBackwardFilter, [input, grad_output, grad_filter], [])
            }
            Command::Pool(desc) => rebound!(desc, map, then, Pool, [input, output], []),
            Command::PoolBackward(desc) => {
                rebound!(desc, map, then, PoolBackward, [input, grad_output, grad_input], [])
            }
            Command::Rope(desc) => rebound!(desc, map, then, Rope, [input, output, cos, sin], [positions]),
            Command::Gather(desc) => rebound!(desc, map, then, Gather, [table, indices, output], []),
            Command::Scatter(desc) => rebound!(desc, map, then, Scatter, [table, indices, source], []),
            Command::TopK(desc) => rebound!(desc, map, then, TopK, [input, indices], [values]),
            Command::Random(desc) => rebound!(desc, map, then, Random, [output], [offset_ptr]),
        }
    }

    /// The memory that the operation touches, after a check of its shapes; `op` is the name that errors carry.
    ///
    /// # Errors
    /// The errors of the descriptor's `operands`.
    pub fn operands(&self, op: &'static str) -> BackendResult<Vec<Operand>> {
        Ok(match self {
            Command::Unary(desc) => desc.operands(op)?.0.to_vec(),
            Command::Binary(desc) => desc.operands(op)?.0.to_vec(),
            Command::Compare(desc) => desc.operands(op)?.0.to_vec(),
            Command::Where(desc) => desc.operands(op)?.0.to_vec(),
            Command::Clamp(desc) => desc.operands(op)?.0.to_vec(),
            Command::Affine(desc) => desc.operands(op)?.0.to_vec(),
            Command::Copy(desc) => desc.operands(op)?.0.to_vec(),
            Command::Permute(desc) => desc.operands(op)?.0.to_vec(),
            Command::Slice(desc) => desc.operands(op)?.0.to_vec(),
            Command::Pad(desc) => desc.operands(op)?.0.to_vec(),
            Command::Repeat(desc) => desc.operands(op)?.0.to_vec(),
            Command::Reduce(desc) => desc.operands(op)?.0.to_vec(),
            Command::Concat(desc) => desc.operands(op)?.into_iter().flat_map(|(both, _)| both).collect(),
            Command::Matmul(desc) => desc.operands(op)?.to_vec(),
            Command::QuantMatmul(desc) => desc.operands(op)?.to_vec(),
            Command::QuantGather(desc) => desc.operands(op)?.to_vec(),
            Command::Dequantize(desc) => desc.operands(op)?.to_vec(),
            Command::Attention(desc) => desc.operands(op)?.to_vec(),
            Command::Softmax(desc) => desc.operands(op)?.to_vec(),
            Command::LayerNorm(desc) => desc.operands(op)?.to_vec(),
            Command::RmsNorm(desc) => desc.operands(op)?.to_vec(),
            Command::GroupNorm(desc) => desc.operands(op)?.to_vec(),
            Command::BatchNorm(desc) => desc.operands(op)?.to_vec(),
            Command::CumSum(desc) => desc.operands(op)?.to_vec(),
            Command::SoftmaxBackward(desc) => desc.operands(op)?.to_vec(),
            Command::NormBackward(desc) => desc.operands(op)?.to_vec(),
            Command::NormBackwardWeight(desc) => desc.operands(op)?.to_vec(),
            Command::Conv(desc) => desc.operands(op)?.to_vec(),
            Command::ConvTranspose(desc) => desc.operands(op)?.to_vec(),
            Command::ConvBackwardData(desc) => desc.operands(op)?.to_vec(),
            Command::ConvBackwardFilter(desc) => desc.operands(op)?.to_vec(),
            Command::Pool(desc) => desc.operands(op)?.to_vec(),
            Command::PoolBackward(desc) => desc.operands(op)?.to_vec(),
            Command::Rope(desc) => desc.operands(op)?.to_vec(),
            Command::Gather(desc) => desc.operands(op)?.to_vec(),
            Command::Scatter(desc) => desc.operands(op)?.to_vec(),
            Command::TopK(desc) => desc.operands(op)?.to_vec(),
            Command::Sample(desc) => desc.operands(op)?.to_vec(),
            Command::Random(desc) => desc.operands(op)?.to_vec(),
            &Command::Fill { dst, dtype, n, .. } => {
                vec![Operand::new(op, "dst", dst, dtype, n, Access::Write)?]
            }
            &Command::CopyBytes { dst, src, bytes } => vec![
                Operand::bytes("dst", dst, bytes, Access::Write),
                Operand::bytes("src", src, bytes, Access::Read),
            ],
        })
    }
}

fn tensor<'a>(tensor: TensorDesc<'a>, map: &mut dyn FnMut(u64) -> u64) -> TensorDesc<'a> {
    TensorDesc { ptr: map(tensor.ptr), ..tensor }
}

fn value<'a>(input: Value<'a>, map: &mut dyn FnMut(u64) -> u64) -> Value<'a> {
    match input {
        Value::Tensor(input) => Value::Tensor(tensor(input, map)),
        Value::Scalar(number) => Value::Scalar(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::desc::{
        AttentionDesc, AttentionShape, LayerNormDesc, QuantMatmulDesc, QuantMatrix, RmsNormDesc, WhereDesc,
    };
    use crate::quant::QuantFormat;

    /// The handles of a command's operands that touch memory, after adding 100 to each.
    fn moved(command: Command<'_>) -> Vec<u64> {
        let handles = |command: Command<'_>| -> Vec<u64> {
            let operands = command.operands("t").unwrap();
            operands.iter().filter(|operand| operand.bytes > 0).map(|operand| operand.ptr).collect()
        };
        let before = handles(command);
        let after = command.with_handles(&mut |ptr| ptr + 100, handles);
        assert_eq!(after, before.iter().map(|ptr| ptr + 100).collect::<Vec<_>>(), "{command:?}");
        after
    }

    #[test]
    fn every_handle_is_exchanged_the_optional_ones_too() {
        let shape = AttentionShape { batch: 2, heads: 1, seq_q: 3, seq_kv: 3, head_dim: 4 };
        let mask = AttentionMask { ptr: 5, batch_stride: 0, head_stride: 0, query_stride: 3 };
        let attention =
            AttentionDesc::new(DType::F32, 1, 2, 3, 4, shape).with_mask(mask).with_key_lengths(6).with_lse(7);
        assert_eq!(moved(Command::Attention(&attention)), [101, 102, 103, 104, 105, 106, 107]);
        let norm = LayerNormDesc::new(DType::F32, 1, 2, 3, 4).with_weight(3).with_bias(4).with_residual(5);
        assert_eq!(moved(Command::LayerNorm(&norm.with_sum(6))).len(), 6);
        let norm = RmsNormDesc::new(DType::F32, 1, 2, 3, 4).with_weight(3).with_residual(4).with_sum(5);
        assert_eq!(moved(Command::RmsNorm(&norm)).len(), 5);
        let [a, c, residual] = [1, 3, 4].map(|ptr| Matrix::new(ptr, DType::F32, 64));
        let weights = QuantMatrix::new(2, QuantFormat::Q4_0, 64, 64);
        let product = QuantMatmulDesc::new(2, a, weights, c)
            .with_residual(residual)
            .with_bias(5)
            .with_norm(RmsNorm::new(6, 1e-5));
        assert_eq!(moved(Command::QuantMatmul(&product)).len(), 6);
        let row = |ptr| TensorDesc::packed(ptr, DType::F32, &[4]);
        let condition = TensorDesc::packed(1, DType::U32, &[4]);
        assert_eq!(moved(Command::Where(&WhereDesc::new(condition, row(2), 0.5, row(3)))), [101, 102, 103]);
        let inputs = [row(1), row(2)];
        let output = TensorDesc::packed(3, DType::F32, &[8]);
        assert_eq!(
            moved(Command::Concat(&ConcatDesc { inputs: &inputs, output, axis: 0 })),
            [101, 103, 102, 103]
        );
        assert_eq!(moved(Command::CopyBytes { dst: 1, src: 2, bytes: 4 }), [101, 102]);
    }
}
