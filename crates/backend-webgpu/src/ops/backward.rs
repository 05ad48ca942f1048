//! Gradients of softmax and of the normalisations of rows.

use backend_api::desc::{NormBackwardDesc, NormBackwardWeightDesc, SoftmaxBackwardDesc};
use backend_api::{BackendResult, DType};

use super::fill::fill;
use super::norm::row_moments;
use super::reduce::sum_parts;
use super::shared::iterations;
use super::shared::long_work::in_parts_of_slices;
use super::shared::row_groups::{BUSY, LEAST, RowGroups, SliceParams};
use super::shared::vec_width::VecWidth;
use super::softmax::Constants as Softmax;
use crate::context::MAX_GROUPS;
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, linear_grid};

constants! { struct NormConstants { centred: bool, in_place: bool, has_weight: bool } }
constants! { struct WeightConstants { centred: bool } }

static SOFTMAX_BACKWARD: KernelSource = kernel!(
    "norm/softmax_backward", libs: [GRID, REDUCE, WORKGROUP],
    types: ["T"], constants: Softmax, params: SoftmaxParams, reads: ["y: V", "dy: V"], writes: ["dx: V"],
);

static NORM_BACKWARD: KernelSource = kernel!(
    "norm/norm_backward", libs: [GRID, REDUCE, WORKGROUP],
    types: ["T"], constants: NormConstants, params: NormParams,
    reads: ["x: V", "dy: V", "weight: V"], writes: ["dx: V"],
);

static NORM_BACKWARD_WEIGHT: KernelSource = kernel!(
    "norm/norm_backward_weight", libs: [GRID],
    types: ["T"], constants: WeightConstants, params: WeightParams,
    reads: ["x: T", "dy: T", "moments: f32"], writes: ["sums: f32"],
);

params! {
    struct SoftmaxParams {
        slices: SliceParams,
        y_offset: u32,
        dy_offset: u32,
        dx_offset: u32,
    }
}

params! {
    struct NormParams {
        rows: u32,
        // Vectors of a row.
        columns: u32,
        row_group: u32,
        eps: f32,
        x_offset: u32,
        dy_offset: u32,
        weight_offset: u32,
        dx_offset: u32,
    }
}

params! {
    struct WeightParams {
        rows: u32,
        columns: u32,
        // Rows of a part.
        chunk: u32,
        eps: f32,
        x_offset: u32,
        dy_offset: u32,
        moments_offset: u32,
        sums_offset: u32,
    }
}

/// What there may be too many of for the loops of a device's invocation.
const LOADS: &str = "loads of an invocation along the axis";
/// Times that rows are read or written.
const PASSES: usize = 5;
/// Rows that are worth a workgroup of their own, and the most that one should take.
const PART: [usize; 2] = [32, 1024];

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for vec_width in [VecWidth::One, VecWidth::Four] {
            for softmax in Softmax::all() {
                variants.push(Variant::new(&SOFTMAX_BACKWARD, [dtype], softmax).with_libs(vec_width.libs()));
            }
            for (centred, in_place) in [(false, false), (false, true), (true, false), (true, true)] {
                variants.extend([false, true].map(|has_weight| {
                    let constants = NormConstants { centred, in_place, has_weight };
                    Variant::new(&NORM_BACKWARD, [dtype], constants).with_libs(vec_width.libs())
                }));
            }
        }
        variants.extend(
            [false, true]
                .map(|centred| Variant::new(&NORM_BACKWARD_WEIGHT, [dtype], WeightConstants { centred })),
        );
    }
    variants
}

/// `grad_input = y · (grad_output − Σ grad_output · y)`, or that of the logarithm.
pub(crate) fn softmax_backward(
    ctx: &OpContext,
    op: &'static str,
    desc: &SoftmaxBackwardDesc,
) -> BackendResult<()> {
    let [Some(y), Some(dy), Some(dx)] = ctx.resolve(op, &desc.operands(op)?)? else {
        return Ok(());
    };
    let dtype = desc.dtype;
    ctx.require_dtype(op, dtype)?;
    let item = desc.length * desc.inner * dtype.size();
    in_parts_of_slices(ctx, op, [desc.outer, item, PASSES], [&y, &dy, &dx], |outer, slices| {
        let mut desc = *desc;
        desc.outer = outer;
        softmax_backward_part(ctx, op, &desc, slices)
    })
}

fn softmax_backward_part(
    ctx: &OpContext,
    op: &'static str,
    desc: &SoftmaxBackwardDesc,
    [y, dy, dx]: [DeviceSlice; 3],
) -> BackendResult<()> {
    let dtype = desc.dtype;
    let output = ctx.output(&dx, dtype);
    let (gradient, in_place) = ctx.input_or_output(op, dtype, &dy, (&dx, &output))?;
    let input = ctx.input(op, &y, dtype, &output)?;
    let vec_width = match desc.inner {
        1 => VecWidth::four_if_fitting(&[&input, &gradient, &output], &[desc.length]),
        _ => VecWidth::One,
    };
    let (width, slices) = (vec_width.width(), desc.outer * desc.inner);
    let row_groups = RowGroups::new(desc.length / width, desc.inner, LEAST);
    iterations::require(ctx, op, LOADS, row_groups.share(desc.length / width), 2)?;
    let params = SoftmaxParams {
        slices: SliceParams::new(op, row_groups, [slices, desc.length / width, desc.inner])?,
        y_offset: input.offset / width as u32,
        dy_offset: gradient.offset / width as u32,
        dx_offset: output.offset / width as u32,
    };
    let constants = Softmax { log: desc.log, in_place };
    let variant = Variant::new(&SOFTMAX_BACKWARD, [dtype], constants).with_libs(vec_width.libs());
    ctx.launch(op, &variant, &[&input, &gradient], &output, &params, row_groups.grid(op, slices)?)
}

/// The gradient of a normalisation with respect to its rows.
pub(crate) fn norm_backward(ctx: &OpContext, op: &'static str, desc: &NormBackwardDesc) -> BackendResult<()> {
    let [Some(x), Some(dy), Some(dx), weight] = ctx.resolve(op, &desc.operands(op)?)? else {
        return Ok(());
    };
    let dtype = desc.dtype;
    ctx.require_dtype(op, dtype)?;
    let row = desc.columns * dtype.size();
    in_parts_of_slices(ctx, op, [desc.rows, row, PASSES], [&x, &dy, &dx], |rows, slices| {
        let mut desc = *desc;
        desc.rows = rows;
        norm_backward_part(ctx, op, &desc, slices, weight.as_ref())
    })
}

fn norm_backward_part(
    ctx: &OpContext,
    op: &'static str,
    desc: &NormBackwardDesc,
    [x, dy, dx]: [DeviceSlice; 3],
    weight: Option<&DeviceSlice>,
) -> BackendResult<()> {
    let dtype = desc.dtype;
    let output = ctx.output(&dx, dtype);
    let (gradient, in_place) = ctx.input_or_output(op, dtype, &dy, (&dx, &output))?;
    let input = ctx.input(op, &x, dtype, &output)?;
    let weights = ctx.optional_input(op, weight, dtype, &output)?;
    let vec_width = VecWidth::four_if_fitting(&[&input, &gradient, &weights, &output], &[desc.columns]);
    let width = vec_width.width();
    let row_groups = RowGroups::new(desc.columns / width, 1, LEAST);
    iterations::require(ctx, op, LOADS, row_groups.share(desc.columns / width), 3)?;
    let params = NormParams {
        rows: dim(op, "rows", desc.rows)?,
        columns: dim(op, "columns", desc.columns / width)?,
        row_group: row_groups.size,
        eps: desc.eps as f32,
        x_offset: input.offset / width as u32,
        dy_offset: gradient.offset / width as u32,
        weight_offset: weights.offset / width as u32,
        dx_offset: output.offset / width as u32,
    };
    let constants = NormConstants { centred: desc.centred, in_place, has_weight: weight.is_some() };
    let variant = Variant::new(&NORM_BACKWARD, [dtype], constants).with_libs(vec_width.libs());
    let reads = [&input, &gradient, &weights];
    ctx.launch(op, &variant, &reads, &output, &params, row_groups.grid(op, desc.rows)?)
}

/// The gradient of a normalisation with respect to its weight: the moments of the rows, then sums over parts
/// of them, then over the parts.
pub(crate) fn norm_backward_weight(
    ctx: &OpContext,
    op: &'static str,
    desc: &NormBackwardWeightDesc,
) -> BackendResult<()> {
    let [x, dy, dw] = ctx.resolve(op, &desc.operands(op)?)?;
    let Some(dw) = dw else { return Ok(()) };
    let &NormBackwardWeightDesc { dtype, rows, columns, .. } = desc;
    let (Some(x), Some(dy)) = (x, dy) else {
        return fill(ctx, op, desc.grad_weight, dtype, columns, 0.0);
    };
    ctx.require_dtype(op, dtype)?;
    let output = ctx.output(&dw, dtype);
    let moments = row_moments(ctx, op, &x, dtype, [rows, columns], desc.centred)?;

    let groups = columns.div_ceil(256);
    let chunk = rows_of_part(rows, groups);
    let parts = rows.div_ceil(chunk);
    let sums = ctx.scratch(op, parts * columns * DType::F32.size())?;
    let sums = ctx.output(&sums, DType::F32);
    let input = ctx.input(op, &x, dtype, &sums)?;
    let gradient = ctx.input(op, &dy, dtype, &sums)?;
    let params = WeightParams {
        rows: dim(op, "rows", rows)?,
        columns: dim(op, "columns", columns)?,
        chunk: dim(op, "rows", chunk)?,
        eps: desc.eps as f32,
        x_offset: input.offset,
        dy_offset: gradient.offset,
        moments_offset: moments.offset,
        sums_offset: sums.offset,
    };
    let variant = Variant::new(&NORM_BACKWARD_WEIGHT, [dtype], WeightConstants { centred: desc.centred });
    let [x, y, _] = linear_grid(op, groups)?;
    let grid = [x, y, dim(op, "rows", parts)?];
    ctx.launch(op, &variant, &[&input, &gradient, &moments], &sums, &params, grid)?;
    sum_parts(ctx, op, &sums, [parts, columns], (&output, dtype))
}

/// Rows in a part of the sums over rows, for so many workgroups of columns: no more parts than a grid has
/// places.
fn rows_of_part(rows: usize, groups: usize) -> usize {
    let [least, most] = PART;
    let wanted = (BUSY / groups).min(rows / least).max(rows.div_ceil(most));
    rows.div_ceil(wanted.clamp(1, MAX_GROUPS as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_a_grid() {
        let parts = |rows: usize, groups| rows.div_ceil(rows_of_part(rows, groups));
        assert_eq!([parts(1, 1), parts(64, 1), parts(1 << 20, 1)], [1, 2, 1024]);
        assert_eq!([parts(4096, 65_536), parts(1 << 26, 1)], [4, 65_473]);
        assert!((1..64).all(|more| parts((1 << 26) + 977 * more, 1) <= MAX_GROUPS as usize));
    }
}
