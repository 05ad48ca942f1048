//! Convolutions whose sums are longer than the device's loops may be (see [`iterations`]): slices of the
//! channels, each a convolution of copies in f32, whose results are added.

use std::ops::Range;

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product, collapse};
use backend_api::{Activation, BackendError, BackendResult, DType};

use super::{Job, launch, split};
use crate::ops::copy::copy_windows;
use crate::ops::op_context::OpContext;
use crate::ops::shared::iterations;
use crate::recorder::Window;

/// The most iterations of any kernel for each tap of a result.
const ITERATIONS: usize = 6;

/// The channels in a slice, if the sums of a convolution are too long for one launch.
///
/// # Errors
/// [`Limit`](BackendError::Limit) if the taps of a single channel are too many.
pub(super) fn channels(
    ctx: &OpContext,
    op: &'static str,
    gather: &ConvGather,
) -> BackendResult<Option<usize>> {
    let Some(most) = iterations::exceeded(ctx, gather.taps().saturating_mul(ITERATIONS)) else {
        return Ok(None);
    };
    let (requested, max) = (gather.filter[0].saturating_mul(gather.filter[1]), most / ITERATIONS);
    match max / requested {
        0 => Err(BackendError::Limit { op, what: "rows × columns of the filter", requested, max }),
        channels => Ok(Some(channels)),
    }
}

/// Makes the convolution in slices of so many channels.
pub(super) fn run(ctx: &OpContext, op: &'static str, job: &Job, channels: usize) -> BackendResult<()> {
    let &ConvGather { batch, groups, filters, .. } = &job.gather;
    let count = job.gather.channels.div_ceil(channels);
    let results = checked_product(op, "scratch", &[batch, groups, filters, job.gather.pixels()])?;
    let parts = scratch(ctx, op, checked_product(op, "scratch", &[count, results])?)?;
    for slice in 0..count {
        let _part = ctx.begin_part();
        let first = slice * channels;
        let range = first..job.gather.channels.min(first + channels);
        let mut gather = job.gather;
        gather.channels = range.len();
        let part = Job {
            gather,
            first_row: job.first_row,
            dtype: DType::F32,
            biased: false,
            activation: Activation::Identity,
            input: copy_f32(ctx, op, job, &job.input, source(&job.gather), range.clone())?,
            filter: copy_f32(ctx, op, job, &job.filter, weights(job), range)?,
            bias: ctx.null(),
            output: parts.advanced(slice * results),
            transposed: job.transposed,
        };
        launch(ctx, op, &part)?;
    }
    split::combine(ctx, op, job, &parts, count)
}

/// What lies around the channels of a group in the source: extents before, of, and after them.
fn source(gather: &ConvGather) -> [usize; 3] {
    let &ConvGather { batch, groups, channels, source: [height, width], layout, .. } = gather;
    match layout {
        ImageLayout::Nhwc => [batch * height * width * groups, channels, 1],
        _ => [batch * groups, channels, height * width],
    }
}

/// What lies around the channels of a group in the filters, which are stored by the channels of a
/// convolution's output.
fn weights(job: &Job) -> [usize; 3] {
    let &ConvGather { groups, channels, filters, filter: [rows, columns], layout, .. } = &job.gather;
    match (job.transposed, layout) {
        (true, _) => [groups, channels, filters * rows * columns],
        (false, ImageLayout::Nhwc) => [groups * filters * rows * columns, channels, 1],
        (false, _) => [groups * filters, channels, rows * columns],
    }
}

/// A copy of a range of the middle one of three packed dimensions, in f32.
fn copy_f32(
    ctx: &OpContext,
    op: &'static str,
    job: &Job,
    window: &Window,
    [outer, extent, inner]: [usize; 3],
    range: Range<usize>,
) -> BackendResult<Window> {
    let kept = range.len() * inner;
    let copy = scratch(ctx, op, checked_product(op, "scratch", &[outer, kept])?)?;
    let loops = collapse([&[(outer, extent * inner), (kept, 1)], &[(outer, kept), (kept, 1)]]);
    let first = window.advanced(range.start * inner);
    copy_windows(ctx, op, [job.dtype, DType::F32], loops, [&first, &copy])?;
    Ok(copy)
}

/// Room for so many elements of f32.
fn scratch(ctx: &OpContext, op: &'static str, elements: usize) -> BackendResult<Window> {
    let bytes = checked_product(op, "scratch", &[elements, DType::F32.size()])?;
    Ok(ctx.output(&ctx.scratch(op, bytes.next_multiple_of(16))?, DType::F32))
}
