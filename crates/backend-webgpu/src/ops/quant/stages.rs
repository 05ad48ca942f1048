//! Products with a norm or a gate that their kernel doesn't know: one operation after the other, over scratch memory.

use backend_api::desc::{Matrix, QuantMatmulDesc};
use backend_api::support::{Loop, checked_product};
use backend_api::{Activation, BackendResult, BinaryOp, DType, Gate};

use super::matmul;
use super::operands::Slices;
use crate::memory::DeviceSlice;
use crate::ops::binary::binary_of;
use crate::ops::copy::copy_windows;
use crate::ops::norm::rms_norm_of;
use crate::ops::op_context::OpContext;

/// `C = residual + activation(alpha · norm(A) · Bᵀ + bias)`, with a norm, a gate or both.
pub(super) fn multiply(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    slices: &Slices<'_>,
) -> BackendResult<()> {
    let mut plain = *desc;
    if desc.norm.is_some() {
        plain.norm = None;
        let rows = normalised(ctx, op, desc, slices)?;
        if rows.is_some() {
            plain.a = Matrix::new(0, desc.multiplied_dtype(), desc.k());
        }
        let slices = Slices { a: rows.as_ref().or(slices.a), norm: None, ..*slices };
        return matmul::multiply(ctx, op, &plain, &slices);
    }
    let Some(gate) = plain.gate.take() else {
        return matmul::multiply(ctx, op, &plain, slices);
    };
    let dtype = desc.c.dtype;
    let product = ctx.scratch(op, checked_product(op, "C", &[desc.m, desc.b.rows, dtype.size()])?)?;
    (plain.activation, plain.residual) = (Activation::Identity, None);
    plain.c = Matrix::new(0, dtype, desc.b.rows);
    matmul::multiply(ctx, op, &plain, &Slices { residual: None, c: &product, ..*slices })?;

    let (m, n, ld) = (desc.m, desc.n(), desc.c.ld);
    let opened = DeviceSlice {
        block: product.block.clone(),
        offset: product.offset + n * dtype.size(),
        len: product.len - n * dtype.size(),
    };
    let loops = |strides: [usize; 3]| -> Vec<Loop<3>> { vec![(m, strides), (n, [1; 3])] };
    let row = 2 * n;
    let (Some(matrix), Some(residual)) = (desc.residual, slices.residual) else {
        let operands = [&product, &opened, slices.c];
        return binary_of(ctx, op, gate.binary(), dtype, loops([row, row, ld]), operands);
    };
    if dtype != DType::F32 {
        return add_in_f32(ctx, op, desc, gate, &product, (matrix.ld, residual), slices.c);
    }
    let operands = [&product, &opened, &product];
    binary_of(ctx, op, gate.binary(), dtype, loops([row; 3]), operands)?;
    let operands = [residual, &product, slices.c];
    binary_of(ctx, op, BinaryOp::Add, dtype, loops([matrix.ld, row, ld]), operands)
}

/// `C = residual + activation(P₁) · P₂` of a product of f16, whose terms aren't rounded before they are added.
fn add_in_f32(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    gate: Gate,
    product: &DeviceSlice,
    (residual_ld, residual): (usize, &DeviceSlice),
    c: &DeviceSlice,
) -> BackendResult<()> {
    let (m, n, row, stored) = (desc.m, desc.n(), 2 * desc.n(), desc.c.dtype);
    let widened = |slice: &DeviceSlice, ld: usize, columns: usize| -> BackendResult<DeviceSlice> {
        let to = ctx.scratch(op, checked_product(op, "C", &[m, columns, DType::F32.size()])?)?;
        let output = ctx.output(&to, DType::F32);
        let input = ctx.input(op, slice, stored, &output)?;
        let loops = vec![(m, [ld, columns]), (columns, [1, 1])];
        copy_windows(ctx, op, [stored, DType::F32], loops, [&input, &output])?;
        Ok(to)
    };
    let (product, residual) = (widened(product, row, row)?, widened(residual, residual_ld, n)?);
    let half = n * DType::F32.size();
    let opened =
        DeviceSlice { block: product.block.clone(), offset: product.offset + half, len: product.len - half };
    let loops = |strides: [usize; 3]| -> Vec<Loop<3>> { vec![(m, strides), (n, [1; 3])] };
    binary_of(ctx, op, gate.binary(), DType::F32, loops([row; 3]), [&product, &opened, &product])?;
    binary_of(ctx, op, BinaryOp::Add, DType::F32, loops([n, row, row]), [&residual, &product, &product])?;
    let output = ctx.output(c, stored);
    let input = ctx.input(op, &product, DType::F32, &output)?;
    let loops = vec![(m, [row, desc.c.ld]), (n, [1, 1])];
    copy_windows(ctx, op, [DType::F32, stored], loops, [&input, &output])
}

/// A's rows normalised, packed; `None` where there is nothing to normalise.
fn normalised(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    slices: &Slices<'_>,
) -> BackendResult<Option<DeviceSlice>> {
    let (Some(norm), Some(a), Some(weight)) = (desc.norm, slices.a, slices.norm) else { return Ok(None) };
    let (m, k, dtype) = (desc.m, desc.k(), desc.a.dtype);
    let types = [dtype, desc.multiplied_dtype()];
    let rows = |dtype: DType| ctx.scratch(op, checked_product(op, "A", &[m, k, dtype.size()])?);
    let to = rows(types[1])?;
    if m <= 1 || desc.a.ld == k {
        rms_norm_of(ctx, op, types, [m, k], norm.eps, [a, &to, weight])?;
        return Ok(Some(to));
    }
    let packed = if types[0] == types[1] { to.clone() } else { rows(dtype)? };
    let output = ctx.output(&packed, dtype);
    let input = ctx.input(op, a, dtype, &output)?;
    copy_windows(ctx, op, [dtype; 2], vec![(m, [desc.a.ld, k]), (k, [1, 1])], [&input, &output])?;
    rms_norm_of(ctx, op, types, [m, k], norm.eps, [&packed, &to, weight])?;
    Ok(Some(to))
}
