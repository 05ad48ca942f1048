//! Copies of filters, as kernels multiply by them.

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product};
use backend_api::{BackendResult, DType};

use super::Job;
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::ops::op_context::{OpContext, dim, dims, invocation_grid};
use crate::recorder::Window;

static REPACK_FILTER: KernelSource = kernel!(
    "conv/repack_filter", libs: [INVOCATION_OUTPUTS],
    types: ["T"], constants: [], params: Params, reads: ["filter_values: T"], writes: ["repacked: T"],
);

params! {
    struct Params {
        total: u32,
        // Of a group: channels of the result and of what is read, the latter also as in the rows that are written.
        filters: u32,
        channels: u32,
        channels_out: u32,
        // R · S.
        places: u32,
        // Whether channels follow each other in the filters, and in what is written.
        interleaved: u32,
        interleave: u32,
        transposed: u32,
        filter_offset: u32,
        output_offset: u32,
    }
}

pub(super) fn variants() -> Vec<Variant> {
    [DType::F32, DType::F16].map(|dtype| Variant::new(&REPACK_FILTER, [dtype], [])).into()
}

/// The convolution with its filters as kernels read them: the channels of a tap adjacent if `interleave`,
/// else the taps of a channel, and the input and output channels of transposed filters exchanged. They are
/// copied where that moves anything.
pub(super) fn as_multiplied(
    ctx: &OpContext,
    op: &'static str,
    job: &Job,
    interleave: bool,
) -> BackendResult<Job> {
    let &ConvGather { channels, filters, filter, layout, .. } = &job.gather;
    let interleaved = layout == ImageLayout::Nhwc;
    let stays = interleaved == interleave || channels <= 1 || filter == [1, 1];
    let same = if interleaved { (channels, filters) == (1, 1) } else { channels <= 1 || filters == 1 };
    if stays && (!job.transposed || same) || job.gather.taps() == 0 {
        return Ok(job.clone());
    }
    let filter = copy(ctx, op, job, channels, interleave)?;
    Ok(Job { filter, ..job.clone() })
}

/// Filters with `channels` channels, 0 for those that there aren't, which follow each other or not.
pub(super) fn copy(
    ctx: &OpContext,
    op: &'static str,
    job: &Job,
    channels: usize,
    interleave: bool,
) -> BackendResult<Window> {
    let gather = &job.gather;
    let places = checked_product(op, "filter", &[gather.filter[0], gather.filter[1]])?;
    let total = checked_product(op, "scratch", &[gather.groups, gather.filters, channels, places])?;
    let bytes = checked_product(op, "scratch", &[total, job.dtype.size()])?;
    let copy = ctx.output(&ctx.scratch(op, bytes.next_multiple_of(16))?, job.dtype);
    let grid = invocation_grid(op, total)?;
    let [total, places] = dims(op, "filter", [total, places])?;
    let [channels, channels_out] = dims(op, "channels", [gather.channels, channels])?;
    let params = Params {
        total,
        filters: dim(op, "filters", gather.filters)?,
        channels,
        channels_out,
        places,
        interleaved: u32::from(gather.layout == ImageLayout::Nhwc),
        interleave: u32::from(interleave),
        transposed: u32::from(job.transposed),
        filter_offset: job.filter.offset,
        output_offset: copy.offset,
    };
    ctx.launch(op, &Variant::new(&REPACK_FILTER, [job.dtype], []), &[&job.filter], &copy, &params, grid)?;
    Ok(copy)
}
