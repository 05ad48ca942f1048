//! Copies of filters, as kernels multiply by them.

use backend_api::desc::{ConvGather, ImageLayout};
use backend_api::{BackendResult, DType, checked_product};

use super::Job;
use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::ops::matrix_units::FRAGMENT;
use crate::recorder::Window;

static FACTORS: KernelSource = kernel!(
    "conv/factors",
    libs: [GRID],
    types: ["T"],
    constants: [],
    reads: 1,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        total: u32,
        filters: u32,
        channels: u32,
        channels_out: u32,
        places: u32,
        interleaved: u32,
        interleave: u32,
        transposed: u32,
        blocks: u32,
        filter_offset: u32,
        output_offset: u32,
    }
}

const WORKGROUP: usize = 256;

pub(super) fn variants() -> Vec<Variant> {
    [DType::F32, DType::F16].map(|dtype| Variant::new(&FACTORS, [dtype], [])).into()
}

/// The same with the channels of transposed filters exchanged, where that moves anything.
pub(super) fn as_multiplied(ctx: &Context, op: &'static str, job: &Job) -> BackendResult<Job> {
    let &ConvGather { channels, filters, layout, .. } = &job.gather;
    let interleaved = layout == ImageLayout::Nhwc;
    let same = if interleaved { (channels, filters) == (1, 1) } else { channels <= 1 || filters == 1 };
    if !job.transposed || same || job.gather.taps() == 0 {
        return Ok(job.clone());
    }
    let filter = copy(ctx, op, job, channels, interleaved)?;
    Ok(Job { filter, ..job.clone() })
}

/// Filters with `channels` channels, 0 for those that there aren't, which follow each other or not.
pub(super) fn copy(
    ctx: &Context,
    op: &'static str,
    job: &Job,
    channels: usize,
    interleave: bool,
) -> BackendResult<Window> {
    let params = params(op, job, channels)?;
    let params = Params { interleave: u32::from(interleave), ..params };
    launch(ctx, op, job, params, job.gather.filters)
}

/// Filters as fragments, each in one piece: 16 channels of 16 filters of a group at a place. Those of all its filters
/// follow each other, `filters` with those that there aren't, then places, then channels.
pub(super) fn blocks(ctx: &Context, op: &'static str, job: &Job, filters: usize) -> BackendResult<Window> {
    let params = params(op, job, job.gather.channels)?;
    let params = Params { blocks: dim(op, "filters", filters / FRAGMENT)?, ..params };
    launch(ctx, op, job, params, filters)
}

fn params(op: &'static str, job: &Job, channels: usize) -> BackendResult<Params> {
    let gather = &job.gather;
    Ok(Params {
        filters: dim(op, "filters", gather.filters)?,
        channels: dim(op, "channels", gather.channels)?,
        channels_out: dim(op, "channels", channels)?,
        places: dim(op, "filter", gather.filter[0] * gather.filter[1])?,
        interleaved: u32::from(gather.layout == ImageLayout::Nhwc),
        transposed: u32::from(job.transposed),
        filter_offset: job.filter.offset,
        ..Params::default()
    })
}

/// Copies so many filters of each group.
fn launch(
    ctx: &Context,
    op: &'static str,
    job: &Job,
    params: Params,
    filters: usize,
) -> BackendResult<Window> {
    let (channels, places) = (params.channels_out as usize, params.places as usize);
    let total = checked_product(op, "scratch", &[job.gather.groups, filters, channels, places])?;
    let bytes = checked_product(op, "scratch", &[total, job.dtype.size()])?;
    let copy = ctx.output(op, &ctx.memory.scratch(op, bytes.next_multiple_of(16))?, job.dtype)?;
    let params = Params { total: dim(op, "filter", total)?, output_offset: copy.offset, ..params };
    let grid = linear_grid(op, total.div_ceil(WORKGROUP))?;
    ctx.launch(op, &Variant::new(&FACTORS, [job.dtype], []), &[&job.filter], &copy, &params, grid)?;
    Ok(copy)
}
