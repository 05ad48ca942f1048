//! Convolutions whose sums are longer than the device's loops may be (see [`iterations`]): slices of the
//! channels, each a convolution of copies in f32, whose results are added.

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product};
use backend_api::{Activation, BackendError, BackendResult, DType};

use super::ranges::{copied, scratch};
use super::{Job, launch, split};
use crate::ops::op_context::OpContext;
use crate::ops::shared::iterations;

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
    let parts = scratch(ctx, op, DType::F32, checked_product(op, "scratch", &[count, results])?)?;
    let types = [job.dtype, DType::F32];
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
            input: copied(ctx, op, types, &job.input, source(&job.gather), range.clone())?,
            filter: copied(ctx, op, types, &job.filter, weights(job), range)?,
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
