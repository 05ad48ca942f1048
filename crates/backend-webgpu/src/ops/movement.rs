//! Copies between parts of tensors.

use backend_api::desc::{BinaryDesc, ConcatDesc, PadDesc, TensorDesc};
use backend_api::support::{Operand, Part};
use backend_api::{BackendResult, BinaryOp, DType};

use super::copy::copy_loops;
use crate::ops::op_context::OpContext;

/// `output` = `input` with a value around it.
pub(crate) fn pad(ctx: &OpContext, op: &'static str, desc: &PadDesc<'_>) -> BackendResult<()> {
    let (operands, part, _) = desc.operands(op)?;
    let [_, Some(_)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    for tensor in [desc.input, desc.output] {
        ctx.require_dtype(op, tensor.dtype)?;
    }
    fill_tensor(ctx, op, desc.output, desc.value)?;
    moved(ctx, op, Ok((operands, part)), [desc.input, desc.output])
}

/// `output` = the inputs one after the other.
pub(crate) fn concat(ctx: &OpContext, op: &'static str, desc: &ConcatDesc<'_>) -> BackendResult<()> {
    let parts = desc.operands(op)?;
    // Everything is checked before anything is recorded.
    for (input, (operands, _)) in desc.inputs.iter().zip(&parts) {
        let resolved = ctx.resolve(op, operands)?;
        if resolved.iter().all(Option::is_some) {
            ctx.require_dtype(op, input.dtype)?;
            ctx.require_dtype(op, desc.output.dtype)?;
        }
    }
    desc.inputs
        .iter()
        .zip(parts)
        .try_for_each(|(input, part)| moved(ctx, op, Ok(part), [*input, desc.output]))
}

/// Sets every element of a strided tensor: the larger of a number and itself is that number.
fn fill_tensor(ctx: &OpContext, op: &'static str, output: TensorDesc<'_>, value: f64) -> BackendResult<()> {
    let value = match output.dtype {
        // Rounded here, as kernels may round to f16 in either direction.
        DType::F16 => half::f16::from_f32(backend_api::support::round_to_odd(value)).to_f64(),
        _ => value,
    };
    super::binary::binary(ctx, op, &BinaryDesc::new(BinaryOp::Max, value, value, output))
}

/// A part of `output` = a part of `input`, as the descriptor says: all that permute, slice and repeat do.
pub(crate) fn moved(
    ctx: &OpContext,
    op: &'static str,
    checked: BackendResult<([Operand; 2], Part)>,
    [input, output]: [TensorDesc<'_>; 2],
) -> BackendResult<()> {
    let (operands, part) = checked?;
    let [Some(src), Some(dst)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    if part.loops.iter().any(|&(extent, _)| extent == 0) {
        return Ok(());
    }
    copy_loops(ctx, op, [input.dtype, output.dtype], part.loops, [&src, &dst], part.offsets)
}
