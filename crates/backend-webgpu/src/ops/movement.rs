//! Copies between parts of tensors.

use backend_api::desc::{BinaryDesc, ConcatDesc, PadDesc, PermuteDesc, RepeatDesc, SliceDesc, TensorDesc};
use backend_api::support::{Operand, Part};
use backend_api::{BackendResult, BinaryOp, DType};

use super::copy::copy_loops;
use crate::ops::op_context::OpContext;

/// `output = input` in another order of dimensions.
pub(crate) fn permute(ctx: &OpContext, op: &'static str, desc: &PermuteDesc<'_>) -> BackendResult<()> {
    let (operands, part) = desc.operands(op)?;
    copy_part(ctx, op, &operands, [desc.input.dtype, desc.output.dtype], part)
}

/// `output` = a box of `input`.
pub(crate) fn slice(ctx: &OpContext, op: &'static str, desc: &SliceDesc<'_>) -> BackendResult<()> {
    let (operands, part) = desc.operands(op)?;
    copy_part(ctx, op, &operands, [desc.input.dtype, desc.output.dtype], part)
}

/// `output` = `input` again and again.
pub(crate) fn repeat(ctx: &OpContext, op: &'static str, desc: &RepeatDesc<'_>) -> BackendResult<()> {
    let (operands, part) = desc.operands(op)?;
    copy_part(ctx, op, &operands, [desc.input.dtype, desc.output.dtype], part)
}

/// `output` = `input` with a value around it.
pub(crate) fn pad(ctx: &OpContext, op: &'static str, desc: &PadDesc<'_>) -> BackendResult<()> {
    let (operands, part, _) = desc.operands(op)?;
    let types = [desc.input.dtype, desc.output.dtype];
    let [_, Some(_)] = ctx.resolve(op, &operands)? else { return Ok(()) };
    for dtype in types {
        ctx.require_dtype(op, dtype)?;
    }
    fill_tensor(ctx, op, desc.output, desc.value)?;
    copy_part(ctx, op, &operands, types, part)
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
    for (input, (operands, part)) in desc.inputs.iter().zip(parts) {
        copy_part(ctx, op, &operands, [input.dtype, desc.output.dtype], part)?;
    }
    Ok(())
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

fn copy_part(
    ctx: &OpContext,
    op: &'static str,
    operands: &[Operand; 2],
    types: [DType; 2],
    part: Part,
) -> BackendResult<()> {
    let [Some(src), Some(dst)] = ctx.resolve(op, operands)? else { return Ok(()) };
    if part.loops.iter().any(|&(extent, _)| extent == 0) {
        return Ok(());
    }
    copy_loops(ctx, op, types, part.loops, [&src, &dst], part.offsets)
}
