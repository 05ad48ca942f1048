//! Products of many rows: B is dequantised a part at a time, for the kernels of [`matmul`].

use backend_api::desc::{Bias, BiasAxis, MatmulDesc, Matrix, QuantMatmulDesc};
use backend_api::support::checked_product;
use backend_api::{Activation, BackendError, BackendResult, BackendTranspose, DType};

use super::dequantize::dequantize_rows;
use super::formats::fits_half;
use super::operands::{Operands, ProductOperands};
use super::planes::Stored;
use crate::memory::DeviceSlice;
use crate::ops::copy::copy_windows;
use crate::ops::matmul;
use crate::ops::op_context::OpContext;

/// Bytes of a part of B: of smaller ones, a launch has too few tiles for large devices.
const PART_BYTES: usize = 128 << 20;

/// What the rows of B in a part are a multiple of.
const PART_ROWS: usize = 256;

/// Fewer rows at a time would read A too often.
const FEWEST_ROWS: usize = 64;

/// Rows of a dequantised B that fit into a binding.
fn bindable_rows(ctx: &OpContext, desc: &QuantMatmulDesc) -> usize {
    let most = usize::try_from(ctx.device.limits.max_bytes).unwrap_or(usize::MAX);
    most / desc.k().saturating_mul(desc.a.dtype.size()).max(1)
}

/// Whether the residual can be C itself, to which the product is added before the activation.
pub(super) fn has_room_for_residual(desc: &QuantMatmulDesc) -> bool {
    desc.residual.is_none() || desc.activation == Activation::Identity
}

/// Copies a residual that isn't C itself to C.
pub(super) fn prepare_residual(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    windows: &Operands,
) -> BackendResult<()> {
    let Some(residual) = desc.residual.filter(|_| !windows.residual_is_c()) else { return Ok(()) };
    let loops = vec![(desc.m, [residual.ld, desc.c.ld]), (desc.n(), [1, 1])];
    copy_windows(ctx, op, [desc.c.dtype; 2], loops, [&windows.residual, &windows.product.c])
}

/// Whether the kernels of [`matmul`] can make the product of a dequantised B, of which some rows can be bound.
pub(super) fn is_possible(ctx: &OpContext, desc: &QuantMatmulDesc) -> bool {
    let types = (desc.a.dtype, desc.c.dtype);
    let has_rows = bindable_rows(ctx, desc) >= FEWEST_ROWS.min(desc.n());
    let fits = desc.a.dtype != DType::F16 || fits_half(desc.b.format);
    desc.k() > 0 && has_room_for_residual(desc) && types != (DType::F32, DType::F16) && has_rows && fits
}

/// Rows of B in a part, with memory for them: fewer where memory is short.
fn part(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    row_bytes: usize,
) -> BackendResult<(usize, DeviceSlice)> {
    let n = desc.n().max(1);
    let parts = checked_product(op, "B", &[n, row_bytes])?.div_ceil(PART_BYTES).max(1);
    let mut rows = n.div_ceil(parts).next_multiple_of(PART_ROWS).min(bindable_rows(ctx, desc)).clamp(1, n);
    loop {
        match ctx.scratch(op, checked_product(op, "B", &[rows, row_bytes])?) {
            Err(BackendError::OutOfMemory { .. }) if rows > PART_ROWS => {
                rows = (rows / 2).next_multiple_of(PART_ROWS);
            }
            scratch => return Ok((rows, scratch?)),
        }
    }
}

/// `C = activation(alpha · A · Bᵀ + bias)`, or `C = residual + alpha · A · Bᵀ + bias`. Weights are rounded to
/// the type of A.
pub(super) fn multiply(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    stored: Stored<'_>,
    windows: &Operands,
) -> BackendResult<()> {
    let (m, n, k) = (desc.m, desc.n(), desc.k());
    let dtype = desc.a.dtype;
    let row_bytes = checked_product(op, "B", &[k, dtype.size()])?;
    let (rows, scratch) = part(ctx, op, desc, row_bytes)?;
    prepare_residual(ctx, op, desc, windows)?;
    for first in (0..n).step_by(rows) {
        let _part = ctx.begin_part();
        let end = n.min(first.saturating_add(rows));
        dequantize_rows(ctx, op, stored, (first, end), (dtype, &scratch))?;
        let b = Matrix::new(0, dtype, k);
        let mut product = MatmulDesc::new(m, end - first, k, desc.a, b, desc.c)
            .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans)
            .with_activation(desc.activation);
        (product.alpha, product.beta) = (desc.alpha, f64::from(u8::from(desc.residual.is_some())));
        product.bias = desc.bias.map(|ptr| Bias { ptr, axis: BiasAxis::Column });
        let ProductOperands { a, bias, c } = windows.starting_at(first).product;
        let b = ctx.input(op, &scratch, dtype, &c)?;
        let windows = matmul::Windows { a, b, bias, c };
        matmul::multiply(ctx, op, &product, &windows)?;
    }
    Ok(())
}
