//! Layer, root-mean-square and group normalisation: rows of elements, each by its own moments.

use std::sync::Arc;

use backend_api::desc::{GroupNormDesc, LayerNormDesc, RmsNormDesc};
use backend_api::{BackendResult, DType};

use super::capture::Made;
use super::copy_bytes::copy_bytes;
use super::norm_kernels::{MOST_WORDS, Params, Place, Role, Shape, Types, apply, moments, normalize};
use super::normed_rows::NormedRows;
use super::shared::iterations;
use super::shared::long_work::{Divisible as _, Run, in_parts};
use super::shared::row_groups::{BUSY, DeviceSize};
use super::shared::rows::{self, Rows};
use super::shared::vec_width::VecWidth;
use crate::kernels::Variant;
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::recorder::Window;

pub(super) use super::norm_kernels::variants;

/// The most parts of a row, which every invocation joins.
const MAX_PARTS: usize = 16;
/// Vectors of a workgroup of `normalize_apply`, and of one step of `moments`.
const STEP: usize = 4 * 256;
/// The bit of `scaled` by which `moments` leaves rows where they are.
const ABOUT_ZERO: u32 = 4;
/// Times that rows are read or written.
const PASSES: usize = 4;

/// `output = (v − mean) / √(var + eps) · weight + bias` for each row v = input + residual.
pub(crate) fn layer_norm(ctx: &OpContext, op: &'static str, desc: &LayerNormDesc) -> BackendResult<()> {
    let [Some(x), Some(y), weight, bias, residual, sum] = ctx.resolve(op, &desc.operands(op)?)? else {
        return Ok(());
    };
    let types = Types { x: desc.dtype, weight: desc.weight_dtype, y: desc.output_dtype };
    let &LayerNormDesc { rows, columns, eps, .. } = desc;
    let call = Call { types, rows, columns, eps, centred: true, channels: None };
    call.run(ctx, op, Slices { x, y, residual, sum, weight, bias })
}

/// `output = v / √(mean(v²) + eps) · weight` for each row v = input + residual.
pub(crate) fn rms_norm(ctx: &OpContext, op: &'static str, desc: &RmsNormDesc) -> BackendResult<()> {
    let [Some(x), Some(y), weight, residual, sum] = ctx.resolve(op, &desc.operands(op)?)? else {
        return Ok(());
    };
    let types = Types { x: desc.dtype, weight: desc.weight_dtype, y: desc.output_dtype };
    let &RmsNormDesc { rows, columns, eps, .. } = desc;
    let call = Call { types, rows, columns, eps, centred: false, channels: None };
    call.run(ctx, op, Slices { x, y, residual, sum, weight, bias: None })
}

/// `output = x / √(mean(x²) + eps) · weight` for packed rows, by the memory of input, output and weight, and the types of
/// input and output.
pub(super) fn rms_norm_of(
    ctx: &OpContext,
    op: &'static str,
    [dtype, output_dtype]: [DType; 2],
    [rows, columns]: [usize; 2],
    eps: f64,
    [x, y, weight]: [&DeviceSlice; 3],
) -> BackendResult<()> {
    let types = Types { y: output_dtype, ..Types::all(dtype) };
    let call = Call { types, rows, columns, eps, centred: false, channels: None };
    let (x, y, weight) = (x.clone(), y.clone(), Some(weight.clone()));
    call.run(ctx, op, Slices { x, y, residual: None, sum: None, weight, bias: None })
}

/// `output = (x − mean) / √(var + eps) · weight + bias` for each group of channels.
pub(crate) fn group_norm(ctx: &OpContext, op: &'static str, desc: &GroupNormDesc) -> BackendResult<()> {
    let [Some(x), Some(y), weight, bias] = ctx.resolve(op, &desc.operands(op)?)? else {
        return Ok(());
    };
    let each = desc.channels / desc.groups;
    let call = Call {
        types: Types { weight: desc.weight_dtype, ..Types::all(desc.dtype) },
        rows: desc.batch * desc.groups,
        columns: each * desc.spatial,
        eps: desc.eps,
        centred: true,
        channels: Some(Channels { spatial: desc.spatial, each, groups: desc.groups }),
    };
    call.run(ctx, op, Slices { x, y, residual: None, sum: None, weight, bias })
}

/// The number of values, their mean and the sum of their squared deviations for each packed row of x, as f32
/// in scratch memory; of rows that aren't centred, deviations from 0.
pub(super) fn row_moments(
    ctx: &OpContext,
    op: &'static str,
    x: &DeviceSlice,
    dtype: DType,
    [rows, columns]: [usize; 2],
    centred: bool,
) -> BackendResult<Window> {
    let call = Call { types: Types::all(dtype), rows, columns, eps: 0.0, centred, channels: None };
    let found = ctx.scratch(op, rows * 3 * DType::F32.size())?;
    let found = ctx.output(&found, DType::F32);
    let x = ctx.input(op, x, dtype, &found)?;
    let vec_width = VecWidth::four_if_fitting(&[&x], &[columns]);
    iterations::require(ctx, op, "columns", columns.div_ceil(STEP * vec_width.width()), 2)?;
    let mut params = call.params(op, vec_width, if centred { 0 } else { ABOUT_ZERO })?;
    (params.x_offset, params.y_offset) = (x.offset / vec_width.width() as u32, found.offset);
    let variant = moments(dtype, vec_width, Place::Absent);
    ctx.launch(op, &variant, &[&x, &ctx.null()], &found, &params, linear_grid(op, rows)?)?;
    Ok(found)
}

/// The memory of a call.
struct Slices {
    x: DeviceSlice,
    y: DeviceSlice,
    residual: Option<DeviceSlice>,
    /// Where x + residual is written.
    sum: Option<DeviceSlice>,
    weight: Option<DeviceSlice>,
    bias: Option<DeviceSlice>,
}

/// A row as channels that each have one weight.
#[derive(Clone, Copy)]
struct Channels {
    /// Elements of a channel.
    spatial: usize,
    /// Channels of a row.
    each: usize,
    /// Rows until the channels are the same again.
    groups: usize,
}

/// Rows to be normalised.
#[derive(Clone, Copy)]
struct Call {
    types: Types,
    rows: usize,
    columns: usize,
    eps: f64,
    centred: bool,
    channels: Option<Channels>,
}

impl Call {
    fn run(&self, ctx: &OpContext, op: &'static str, mut slices: Slices) -> BackendResult<()> {
        ctx.require_dtype(op, self.types.x)?;
        ctx.require_dtype(op, self.types.y)?;
        let Slices { x, y, residual, sum, .. } = &mut slices;
        let Some(target) = sum.clone() else { return self.run_parts(ctx, op, &slices) };
        let Some(residual) = residual else {
            // The input itself, copied before the output is written, which may be where the input is.
            if x.region() != target.region() {
                copy_bytes(ctx, op, &target, x, target.len)?;
            }
            *sum = None;
            return self.run_parts(ctx, op, &slices);
        };
        // There are kernels for an input in the output's memory and a residual in the sum's.
        if x.region() == target.region() || residual.region() == y.region() {
            std::mem::swap(x, residual);
        }
        if !ctx.output(y, self.types.y).shares_buffer(&ctx.output(&target, self.types.x)) {
            return self.run_parts(ctx, op, &slices);
        }
        // Two bindings of one buffer can't both be written.
        let scratch = ctx.scratch(op, target.len.next_multiple_of(4))?;
        *sum = Some(scratch.clone());
        self.run_parts(ctx, op, &slices)?;
        copy_bytes(ctx, op, &target, &scratch, target.len)
    }

    fn run_parts(&self, ctx: &OpContext, op: &'static str, slices: &Slices) -> BackendResult<()> {
        let [row, row_of_y] = [self.types.x, self.types.y].map(|dtype| self.columns * dtype.size());
        let run = Run::of_bytes(self.rows, (PASSES * row) as f64);
        let run = run.aligned(self.channels.map_or(1, |channels| channels.groups));
        let Slices { x, y, residual, sum, .. } = slices;
        let packed = [Some(x), residual.as_ref(), sum.as_ref()];
        let run = packed.into_iter().flatten().fold(run, |run, slice| run.over(ctx, slice, row));
        let run = run.over(ctx, y, row_of_y);
        in_parts(ctx, op, run, |run| match self.channels {
            // Some groups of an image that can't be bound as a whole.
            Some(channels) if run.excess() > 0 && run.count() == channels.groups => {
                in_parts(ctx, op, run.aligned(1), |run| self.run_rows(ctx, op, slices, run))
            }
            _ => self.run_rows(ctx, op, slices, run),
        })
    }

    /// Rows of whole images, or of one.
    fn run_rows(&self, ctx: &OpContext, op: &'static str, slices: &Slices, run: &Run) -> BackendResult<()> {
        let [row, row_of_y] = [self.types.x, self.types.y].map(|dtype| self.columns * dtype.size());
        let part = |slice: &DeviceSlice| run.part_of(slice, row);
        let Slices { x, y, residual, sum, weight, bias } = slices;
        let (residual, sum) = (residual.as_ref().map(part), sum.as_ref().map(part));
        let y = run.part_of(y, row_of_y);
        let mut slices = Slices { x: part(x), y, residual, sum, weight: weight.clone(), bias: bias.clone() };
        let mut call = Self { rows: run.count(), ..*self };
        if let Some(channels) = &mut call.channels
            && run.count() < channels.groups
        {
            let number = self.types.weight.size();
            let [first, count] = [run.first % channels.groups, run.count()].map(|rows| rows * channels.each);
            for slice in [&mut slices.weight, &mut slices.bias].into_iter().flatten() {
                (slice.offset, slice.len) = (slice.offset + first * number, count * number);
            }
            channels.groups = run.count();
        }
        call.run_part(ctx, op, &slices)
    }

    fn run_part(&self, ctx: &OpContext, op: &'static str, slices: &Slices) -> BackendResult<()> {
        let types = self.types;
        let dtype = types.x;
        let output = ctx.output(&slices.y, types.y);
        let sum = slices.sum.as_ref().map(|slice| ctx.output(slice, dtype));
        let bound = |slice: &DeviceSlice, dtype| {
            let input = ctx.input(op, slice, dtype, &output)?;
            match &sum {
                Some(sum) if input.shares_buffer(sum) => ctx.input(op, slice, dtype, sum),
                _ => Ok(input),
            }
        };
        let is = |slice: &DeviceSlice, other: &DeviceSlice| slice.region() == other.region();
        let (input_place, x) = if is(&slices.x, &slices.y) {
            (Place::Output, ctx.null())
        } else {
            (Place::Bound, bound(&slices.x, dtype)?)
        };
        let (residual_place, residual) = match (&slices.residual, &slices.sum) {
            (None, _) => (Place::Absent, ctx.null()),
            (Some(residual), None) if is(residual, &slices.y) => (Place::Output, ctx.null()),
            (Some(residual), Some(sum)) if is(residual, sum) => (Place::Sum, ctx.null()),
            (Some(residual), _) => (Place::Bound, bound(residual, dtype)?),
        };
        let scale = |slice: Option<&DeviceSlice>| {
            slice.map_or_else(|| Ok(ctx.null()), |slice| bound(slice, types.weight))
        };
        let (weight, bias) = (scale(slices.weight.as_ref())?, scale(slices.bias.as_ref())?);

        // Weights of another type are read one by one.
        let mixed = types.weight != dtype;
        let one_by_one = self.channels.is_some() || mixed;
        let bound = [(input_place, &x), (residual_place, &residual)];
        let mut windows: Vec<&Window> =
            bound.into_iter().filter(|&(place, _)| place == Place::Bound).map(|(_, window)| window).collect();
        windows.push(&output);
        let scales = [&weight, &bias].into_iter().filter(|_| !one_by_one);
        let (vec_width, rows) = self.access(&windows, sum.as_ref(), scales, DeviceSize::of(ctx));
        let one_by_one = one_by_one || vec_width == VecWidth::Two;
        let scaled = u32::from(slices.weight.is_some()) | u32::from(slices.bias.is_some()) << 1;
        let mut params = self.params(op, vec_width, scaled)?;
        let width = vec_width.width() as u32;
        let scale_width = if one_by_one { 1 } else { width };
        (params.x_offset, params.y_offset) = (x.offset / width, output.offset / width);
        params.residual_offset = residual.offset / width;
        params.sum_offset = sum.as_ref().map_or(0, |sum| sum.offset / width);
        (params.weight_offset, params.bias_offset) = (weight.offset / scale_width, bias.offset / scale_width);
        let shape = Shape::new(types, vec_width, self.channels.is_some());
        let role = Role {
            centred: self.centred,
            input: input_place,
            residual: residual_place,
            summed: sum.is_some(),
        };
        let launch = |variant: &Variant, reads: &[&Window], params: &Params, grid: [u32; 3]| match &sum {
            Some(sum) => ctx.launch(op, variant, &[reads, &[&output]].concat(), sum, params, grid),
            None => ctx.launch(op, variant, reads, &output, params, grid),
        };
        if let Some(rows) = rows {
            params.row_group = rows.row_groups.size;
            (params.rows_per_group, params.rows_before) = (rows.seams.rows_per_group, rows.seams.rows_before);
            let variant = normalize(shape, role, rows.block, rows.shuffled);
            let grid = rows.grid(op, self.rows)?;
            launch(&variant, &[&x, &residual, &weight, &bias], &params, grid)?;
            ctx.note_made(|| {
                role.is_plain(shape).then(|| -> Made {
                    Arc::new(NormedRows {
                        size: [self.rows, self.columns],
                        dtype: types.y,
                        vec_width,
                        x: (input_place == Place::Bound).then_some(x),
                        weight,
                        y: output.clone(),
                        held: (rows.block, rows.shuffled),
                        params,
                        grid,
                    })
                })
            });
            return Ok(());
        }

        // First the moments of the rows, by as many workgroups as it takes, then every number.
        let columns = self.columns / vec_width.width();
        let parts = (BUSY / self.rows).min(columns / STEP).clamp(1, MAX_PARTS);
        let scratch = ctx.scratch(op, self.rows * parts * 3 * DType::F32.size())?;
        let found = ctx.output(&scratch, DType::F32);
        params.parts = parts as u32;
        // Read through the windows whose offsets decided the vector width; an operand that the output
        // overwrites is still whole.
        let read = |place: Place, bound: &Window| match (place, &sum) {
            (Place::Output, _) => output.clone(),
            (Place::Sum, Some(sum)) => sum.clone(),
            _ => bound.clone(),
        };
        let (first, second) = (read(input_place, &x), read(residual_place, &residual));
        let sums = Params {
            x_offset: first.offset / width,
            residual_offset: second.offset / width,
            y_offset: found.offset,
            scaled: if self.centred { 0 } else { ABOUT_ZERO },
            ..params
        };
        let summed = if slices.residual.is_some() { Place::Bound } else { Place::Absent };
        let grid = linear_grid(op, self.rows * parts)?;
        ctx.launch(op, &moments(dtype, vec_width, summed), &[&first, &second], &found, &sums, grid)?;
        let grid = linear_grid(op, self.rows * columns.div_ceil(STEP))?;
        launch(&apply(shape, role), &[&x, &residual, &weight, &bias, &found], &params, grid)
    }

    /// How memory is accessed: the vector width, and the plan of rows that a workgroup can hold. `windows` are
    /// those of input, residual and output; `scales` those of weight and bias, where they are read in vectors.
    fn access<'a>(
        &self,
        windows: &[&'a Window],
        sum: Option<&'a Window>,
        scales: impl Iterator<Item = &'a Window>,
        device: DeviceSize,
    ) -> (VecWidth, Option<Rows>) {
        let unit = self.channels.map_or(self.columns, |channels| channels.spatial);
        let all: Vec<&Window> = windows.iter().copied().chain(sum).chain(scales).collect();
        let offset = windows.last().map_or(0, |output| output.offset);
        let slices = rows::Slices { dtype: self.types.x, length: self.columns, inner: 1, count: self.rows };
        let rows = |vec_width| Rows::of(slices, vec_width, offset, device);
        let vec_width = VecWidth::four_if_fitting(&all, &[unit]);
        if vec_width == VecWidth::One && self.channels.is_none() && sum.is_none() {
            let in_words = VecWidth::of_rows(self.types.x, self.columns, windows) != VecWidth::One;
            let rows = rows(VecWidth::Two).filter(|rows| rows.block <= MOST_WORDS);
            if rows.is_some() && in_words && self.types.x == DType::F16 {
                return (VecWidth::Two, rows);
            }
        }
        (vec_width, rows(vec_width))
    }

    /// All but what depends on where the operands are.
    fn params(&self, op: &'static str, vec_width: VecWidth, scaled: u32) -> BackendResult<Params> {
        let width = vec_width.width();
        let channels = self.channels.unwrap_or(Channels { spatial: width, each: 1, groups: 1 });
        Ok(Params {
            rows: dim(op, "rows", self.rows)?,
            columns: dim(op, "columns", self.columns / width)?,
            length: dim(op, "columns", self.columns)?,
            rows_per_group: 1,
            row_group: 256,
            parts: 1,
            eps: self.eps as f32,
            scaled,
            spatial: dim(op, "spatial", channels.spatial / width)?,
            channels: dim(op, "channels", channels.each)?,
            groups: dim(op, "groups", channels.groups)?,
            ..Params::default()
        })
    }
}
