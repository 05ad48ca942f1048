//! Transposed convolutions with strides, as ones without.
//!
//! With a stride of 2, the results at even positions are made of other taps than those at odd ones, but of
//! the same elements: the phases are filters of their own over the same source, and a second kernel puts
//! their results to where they belong. No product with a zero between the elements of the source is ever
//! formed.

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, GatherAxis, checked_product};
use backend_api::{BackendResult, DType};

use super::Job;
use super::ranges::scratch;
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::ops::op_context::{OpContext, dim, dims, invocation_grid};
use crate::recorder::{PART_ALIGNMENT, VECTOR_BYTES, Window};

static SUBPIXEL_FILTERS: KernelSource = kernel!(
    "conv/subpixel_filters", libs: [INVOCATION_OUTPUTS],
    types: ["T"], constants: [], params: Params, reads: ["filter_values: T"], writes: ["repacked: T"],
);

static DEPTH_TO_SPACE: KernelSource = kernel!(
    "conv/depth_to_space", libs: [INVOCATION_OUTPUTS],
    types: ["T"], constants: [], params: DepthToSpaceParams, reads: ["input: T"], writes: ["output: T"],
);

params! {
    struct Params {
        total: u32,
        // Of a group: channels of the result and of what is read.
        filters: u32,
        channels: u32,
        phases_y: u32,
        phases_x: u32,
        height: u32,
        width: u32,
        height_out: u32,
        width_out: u32,
        // Whether channels follow each other.
        interleaved: u32,
        // Whether numbers are repeated instead.
        repeat: u32,
        filter_offset: u32,
    }
}

params! {
    struct DepthToSpaceParams {
        total: u32,
        channels: u32,
        height: u32,
        width: u32,
        phases_y: u32,
        phases_x: u32,
        // Rows and columns of the phases' images, and how far the image begins into them.
        height_in: u32,
        width_in: u32,
        before_y: u32,
        before_x: u32,
        // Whether channels follow each other.
        interleaved: u32,
        output_offset: u32,
    }
}

/// The largest stride that is divided into phases.
const MAX_STRIDE: usize = 8;

pub(super) fn variants() -> Vec<Variant> {
    let of = |dtype| [&SUBPIXEL_FILTERS, &DEPTH_TO_SPACE].map(|source| Variant::new(source, [dtype], []));
    [DType::F32, DType::F16].into_iter().flat_map(of).collect()
}

/// Whether a result is made of phases: it is worth it where a good part of all taps would meet nothing.
pub(super) fn are_worth_it(gather: &ConvGather) -> bool {
    let axes = gather.axes.iter().zip(gather.filter);
    let divided = |(axis, taps): (&GatherAxis, usize)| {
        axis.transposed && axis.stride > 1 && axis.stride <= MAX_STRIDE && axis.dilation == 1 && taps > 1
    };
    let whole = |axis: &GatherAxis| axis.transposed && axis.stride == 1;
    let mut all = axes.clone();
    axes.clone().any(divided)
        && all.all(|(axis, taps)| divided((axis, taps)) || whole(axis))
        && gather.filters > 1
        && gather.taps() > 0
}

/// The phases of each axis.
fn phases(gather: &ConvGather) -> [usize; 2] {
    gather.axes.map(|axis| axis.stride)
}

/// The convolution of all phases at once.
fn apart(gather: &ConvGather) -> ConvGather {
    let phases = phases(gather);
    let mut apart = *gather;
    apart.filters *= phases[0] * phases[1];
    for (axis, phases) in phases.into_iter().enumerate() {
        if phases > 1 {
            let GatherAxis { before, .. } = gather.axes[axis];
            apart.result[axis] = (gather.result[axis] - 1 + before) / phases + 1;
            apart.filter[axis] = gather.filter[axis].div_ceil(phases);
            apart.axes[axis] = GatherAxis { stride: 1, dilation: 1, before: 0, transposed: true };
        }
    }
    apart
}

/// Filters of which the phases, their results and what these become can be bound, with all images.
pub(super) fn most_filters(ctx: &OpContext, job: &Job) -> usize {
    let (whole, apart) = (&job.gather, apart(&job.gather));
    let phases = apart.filters / whole.filters.max(1);
    let images = |gather: &ConvGather| whole.batch.saturating_mul(gather.pixels());
    let elements =
        [images(whole), phases.saturating_mul(images(&apart)), phases.saturating_mul(apart.taps())];
    let bytes = elements.into_iter().fold(1, usize::max).saturating_mul(job.dtype.size());
    // What is bound may begin a little before the results, and end behind them.
    let room = ctx.device.limits.max_bytes.saturating_sub(PART_ALIGNMENT + VECTOR_BYTES);
    usize::try_from(room).unwrap_or(usize::MAX) / bytes
}

/// Divides a job into phases: the job that makes them, whose results are for [`depth_to_space`].
pub(super) fn divide(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<Job> {
    let gather = apart(&job.gather);
    let places = gather.filter[0] * gather.filter[1];
    let filters = checked_product(op, "scratch", &[gather.groups, gather.filters])?;
    let weights = checked_product(op, "scratch", &[filters, gather.channels, places])?;
    let results = [gather.batch, filters, gather.result[0], gather.result[1]];
    let results = checked_product(op, "scratch", &results)?;
    let bias = if job.biased { copy(ctx, op, job, &gather, filters, true)? } else { ctx.null() };
    Ok(Job {
        first_row: 0,
        dtype: job.dtype,
        transposed: false,
        biased: job.biased,
        activation: job.activation,
        input: job.input.clone(),
        filter: copy(ctx, op, job, &gather, weights, false)?,
        bias,
        output: scratch(ctx, op, job.dtype, results)?,
        gather,
    })
}

/// The filters of all phases, or a number of the bias for each of them.
fn copy(
    ctx: &OpContext,
    op: &'static str,
    job: &Job,
    gather: &ConvGather,
    total: usize,
    repeat: bool,
) -> BackendResult<Window> {
    let source = if repeat { &job.bias } else { &job.filter };
    let copy = scratch(ctx, op, job.dtype, total)?;
    let grid = invocation_grid(op, total)?;
    let [phases_y, phases_x] = dims(op, "stride", phases(&job.gather))?;
    let [height, width] = dims(op, "filter", job.gather.filter)?;
    let [height_out, width_out] = dims(op, "filter", gather.filter)?;
    let params = Params {
        total: dim(op, "filter", total)?,
        filters: dim(op, "filters", job.gather.filters)?,
        channels: dim(op, "channels", gather.channels)?,
        phases_y,
        phases_x,
        height,
        width,
        height_out,
        width_out,
        interleaved: u32::from(gather.layout == ImageLayout::Nhwc),
        repeat: u32::from(repeat),
        filter_offset: source.offset,
    };
    ctx.launch(op, &Variant::new(&SUBPIXEL_FILTERS, [job.dtype], []), &[source], &copy, &params, grid)?;
    Ok(copy)
}

/// Puts the results of `made` to where those of `job` are wanted.
pub(super) fn depth_to_space(ctx: &OpContext, op: &'static str, job: &Job, made: &Job) -> BackendResult<()> {
    let ConvGather { batch, groups, filters, result, axes, layout, .. } = job.gather;
    let channels = checked_product(op, "channels", &[groups, filters])?;
    let total = checked_product(op, "output", &[batch, channels, result[0], result[1]])?;
    let grid = invocation_grid(op, total)?;
    let [height, width] = dims(op, "output", result)?;
    let [height_in, width_in] = dims(op, "output", made.gather.result)?;
    let [phases_y, phases_x] = dims(op, "stride", phases(&job.gather))?;
    // Where there is one phase, the padding is part of the convolution.
    let begins = axes.map(|axis| if axis.stride > 1 { axis.before } else { 0 });
    let [before_y, before_x] = dims(op, "padding", begins)?;
    let params = DepthToSpaceParams {
        total: dim(op, "output", total)?,
        channels: dim(op, "channels", channels)?,
        height,
        width,
        phases_y,
        phases_x,
        height_in,
        width_in,
        before_y,
        before_x,
        interleaved: u32::from(layout == ImageLayout::Nhwc),
        output_offset: job.output.offset,
    };
    let variant = Variant::new(&DEPTH_TO_SPACE, [job.dtype], []);
    ctx.launch(op, &variant, &[&made.output], &job.output, &params, grid)
}
