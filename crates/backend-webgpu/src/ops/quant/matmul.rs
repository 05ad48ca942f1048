//! Products with a quantised matrix.

use std::sync::Arc;

use backend_api::desc::QuantMatmulDesc;
use backend_api::{Activation, BackendResult};

use super::append::QkvProduct;
use super::cooperative;
use super::dense::{self, has_room_for_residual, prepare_residual};
use super::kernel::{Kernel, Signature, TILE};
use super::kernel_override::KernelOverride;
use super::operands::{Operands, Params, ProductOperands, Slices};
use super::planes::{Planes, Stored, require_types};
use super::skinny_cooperative::Tile;
use super::{int8, stages};
use crate::kernels::Variant;
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::shared::iterations;
use crate::ops::shared::long_work::{Run, in_parts, require_end};

/// `C = residual + activation(alpha · norm(A) · Bᵀ + bias)`, or with a gate
/// `C = residual + activation(P₁) · P₂`.
pub(crate) fn quant_matmul(ctx: &OpContext, op: &'static str, desc: &QuantMatmulDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [a, b, c, bias, residual, norm] = ctx.resolve(op, &operands)?;
    let Some(c) = c else { return Ok(()) };
    require_types(ctx, op, desc.b.format, [desc.a.dtype, desc.c.dtype, desc.multiplied_dtype()])?;
    let [a, b, bias, residual, norm] = [&a, &b, &bias, &residual, &norm].map(Option::as_ref);
    multiply(ctx, op, desc, &Slices { a, b, bias, residual, norm, c: &c })
}

/// The kernels that a product launches, in their order, of a context that launches nothing.
pub(crate) fn explain_quant_matmul(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
) -> BackendResult<String> {
    quant_matmul(ctx, op, desc)?;
    let names: Vec<_> = ctx.take_variants().iter().map(Variant::kernel).collect();
    Ok(if names.is_empty() { "nothing".to_owned() } else { names.join(", ") })
}

/// [`quant_matmul`] with checked operands.
pub(super) fn multiply(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    slices: &Slices<'_>,
) -> BackendResult<()> {
    let layout = desc.b.layout(op)?;
    let stored = Stored { layout: &layout, slice: slices.b };
    let windows = Operands::new(ctx, op, desc, slices)?;
    let asked = ctx.state.forced();
    let is_asked_for = asked == Some(KernelOverride::SkinnyCooperative);
    let tile = Tile::candidate(ctx, desc, &layout, &windows, is_asked_for);
    let kernel = Kernel::plan(ctx, desc, tile, asked);
    let is_staged = desc.gate.is_some() || desc.norm.is_some();
    if is_staged && !matches!(kernel, Kernel::SkinnyCooperative(_)) {
        return stages::multiply(ctx, op, desc, slices);
    }
    if kernel == Kernel::Tiled
        && asked.is_none()
        && has_room_for_residual(desc)
        && let Some(tile) = cooperative::Tile::candidate(ctx, desc, &windows)
    {
        return multiply_by_tiles(ctx, op, desc, stored, &windows, tile);
    }
    let columns = Run::of_flops(desc.n(), desc.flops() / desc.n().max(1) as f64)
        .with_iterations(kernel.steps(layout.units) as f64)
        .aligned(TILE);
    let may_dequantize = asked != Some(KernelOverride::Tiled);
    if kernel == Kernel::Tiled && may_dequantize && dense::is_possible(ctx, desc) {
        // Its parts know only their own work.
        require_end(ctx, op, &columns)?;
        return dense::multiply(ctx, op, desc, stored, &windows);
    }
    iterations::require(ctx, op, "units of 128 columns", layout.units, kernel.iterations(1))?;
    let (desc, windows) =
        if kernel.is_int8() { int8::rounded(ctx, op, desc, &windows)? } else { (*desc, windows) };
    let (desc, windows) = (&desc, &windows);
    in_parts(ctx, op, columns, |run| {
        let planes = |rows| Planes::new(ctx, op, stored, rows, &windows.product.c);
        if desc.gate.is_some() {
            let planes = planes((0, desc.b.rows))?.starting_at(dim(op, "n", run.first)?);
            return launch(ctx, op, desc, windows, kernel, &planes, (run.first, run.end));
        }
        stored.bindable(ctx, 0, (run.first, run.end)).try_for_each(|(first, end)| {
            launch(ctx, op, desc, windows, kernel, &planes((first, end))?, (first, end))
        })
    })
}

/// The product on tensor cores, which add it to a residual in C.
fn multiply_by_tiles(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    stored: Stored<'_>,
    windows: &Operands,
    tile: cooperative::Tile,
) -> BackendResult<()> {
    let columns = Run::of_flops(desc.n(), desc.flops() / desc.n().max(1) as f64).aligned(tile.tile()[1]);
    // Before C is written.
    require_end(ctx, op, &columns)?;
    prepare_residual(ctx, op, desc, windows)?;
    in_parts(ctx, op, columns, |run| {
        stored.bindable(ctx, 0, (run.first, run.end)).try_for_each(|(first, end)| {
            let planes = Planes::new(ctx, op, stored, (first, end), &windows.product.c)?;
            tile.launch(ctx, op, desc, windows, &planes, (first, end))
        })
    })
}

/// The columns `first..end` of the product.
fn launch(
    ctx: &OpContext,
    op: &'static str,
    desc: &QuantMatmulDesc,
    windows: &Operands,
    kernel: Kernel,
    planes: &Planes,
    (first, end): (usize, usize),
) -> BackendResult<()> {
    let here = windows.starting_at(first);
    let params = Params::new(op, desc, &here, planes, end - first, kernel.tile(desc.gate.is_some()))?;
    let signature = Signature {
        format: desc.b.format,
        dtypes: [desc.a.dtype, desc.c.dtype],
        activation: if desc.gate.is_some() { Activation::Identity } else { desc.activation },
        vectors: windows.has_vectors(desc),
        normed: desc.norm.is_some(),
        gate: desc.gate,
        cache: None,
    };
    let [quants, high, scales, extra] = planes.windows();
    let added = if desc.norm.is_some() { &here.norm } else { &here.residual };
    let ProductOperands { a, bias, c } = &here.product;
    let reads = [quants, high, scales, extra, a, bias, added];
    let grid = linear_grid(op, kernel.workgroups(ctx, params.product.tiles as usize))?;
    ctx.launch(op, &kernel.variant(&signature), &reads, c, &params, grid)?;
    if (first, end) == (0, desc.n()) {
        ctx.note_made(|| {
            let product = QkvProduct::new(desc, kernel, signature, &reads, c, &params, grid)?;
            Some(Arc::new(product))
        });
    }
    Ok(())
}
