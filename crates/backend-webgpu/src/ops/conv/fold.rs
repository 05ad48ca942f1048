//! Convolutions of few channels with a stride along rows, as ones over neighbouring pixels folded into channels
//! (space to depth): eight channels take part in every product on tensor cores, and fewer of them are zeros.

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product};
use backend_api::{BackendResult, DType};

use super::Job;
use super::nchw_to_nhwc::{EIGHT, eight_copies, grid, scratch_of_vec8s};
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::ops::op_context::{OpContext, dim, dims};

static FOLD_PIXELS: KernelSource = eight_copies!("conv/fold_pixels", "folded_filters: vec4<u32>");

params! {
    struct Params {
        // Of the images, vec8s that there are, rows of all, and pixels of a row before and after.
        total: u32,
        height: u32,
        width: u32,
        width_out: u32,
        // Of the filters, which have workgroups of their own: the first workgroup, vec8s, rows of all, and pixels
        // of a row before and after.
        first_filters: u32,
        total_filters: u32,
        filter_height: u32,
        filter_width: u32,
        filter_width_out: u32,
        shift: u32,
        channels: u32,
        // Channels of a pixel in what is written: 8 / FOLD.
        channels_out: u32,
        interleaved: u32,
        input_offset: u32,
        filter_offset: u32,
    }
}

fn variant() -> Variant {
    Variant::new(&FOLD_PIXELS, [DType::F16], [])
}

pub(super) fn variants() -> Vec<Variant> {
    vec![variant()]
}

/// The pixels that become one, if folding leaves fewer products with zeros.
fn pixels(job: &Job) -> Option<usize> {
    let &ConvGather { groups, channels, filter: [_, width], axes: [_, x], .. } = &job.gather;
    let moves = !job.transposed && !x.transposed && x.dilation == 1;
    [8, 4, 2].into_iter().find(|&pixels| {
        let fits = (1..=EIGHT / pixels).contains(&channels) && x.stride.is_multiple_of(pixels);
        moves && groups == 1 && fits && (width + pixels - 1).div_ceil(pixels) < width
    })
}

/// The convolution over folded pixels, with as many taps as it needs, and by how many pixels its filters begin
/// earlier: tap t at `x · stride + t − before` is tap (t + shift) / pixels at `x · stride / pixels − before'`.
fn folded(gather: &ConvGather, pixels: usize) -> (ConvGather, usize) {
    let mut folded = *gather;
    let before = gather.axes[1].before.div_ceil(pixels);
    let shift = before * pixels - gather.axes[1].before;
    folded.channels = EIGHT;
    folded.layout = ImageLayout::Nhwc;
    folded.source[1] = gather.source[1].div_ceil(pixels);
    folded.filter[1] = (gather.filter[1] + shift).div_ceil(pixels);
    folded.axes[1].stride = gather.axes[1].stride / pixels;
    folded.axes[1].before = before;
    (folded, shift)
}

/// What becomes of a convolution by [`fold`], if it is worth it.
pub(super) fn gather(job: &Job) -> Option<ConvGather> {
    pixels(job).map(|pixels| folded(&job.gather, pixels).0)
}

/// The convolution over copies with folded pixels, if it is worth it. Its results are those of `job`.
pub(super) fn fold(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<Option<Job>> {
    let Some(pixels) = pixels(job) else { return Ok(None) };
    let (gather, shift) = folded(&job.gather, pixels);
    let &ConvGather { batch, channels, filters, source: [height, width], filter, layout, .. } = &job.gather;
    let total = checked_product(op, "scratch", &[batch, height, gather.source[1]])?;
    let total_filters = checked_product(op, "scratch", &[filters, filter[0], gather.filter[1]])?;
    let (input, weights) = (scratch_of_vec8s(ctx, op, total)?, scratch_of_vec8s(ctx, op, total_filters)?);
    let (first_filters, grid) = grid(op, total, total_filters)?;
    let [total, height, width, width_out, first_filters] =
        dims(op, "pixels", [total, height, width, gather.source[1], first_filters])?;
    let [total_filters, filter_height, filter_width, filter_width_out] =
        dims(op, "filter", [total_filters, filter[0], filter[1], gather.filter[1]])?;
    let [channels, channels_out] = dims(op, "channels", [channels, EIGHT / pixels])?;
    let params = Params {
        total,
        height,
        width,
        width_out,
        first_filters,
        total_filters,
        filter_height,
        filter_width,
        filter_width_out,
        shift: dim(op, "padding", shift)?,
        channels,
        channels_out,
        interleaved: u32::from(layout == ImageLayout::Nhwc),
        input_offset: job.input.offset,
        filter_offset: job.filter.offset,
    };
    ctx.launch(op, &variant(), &[&job.input, &job.filter, &weights], &input, &params, grid)?;
    Ok(Some(Job { gather, input, filter: weights, ..job.clone() }))
}
