//! Copies of f16 images, and of their filters, with adjacent channels.

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, checked_product};
use backend_api::{BackendResult, DType};

use super::Job;
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::ops::op_context::{OpContext, WORKGROUP, dim, dims, linear_grid};
use crate::recorder::Window;

/// A kernel that copies images and filters to adjacent channels, with the binding of the filters' copy. It is only there for
/// tensor cores: elsewhere, both outputs might lie in one buffer.
macro_rules! eight_copies {
    ($file:literal, $filters:literal) => {
        KernelSource {
            cooperative: true,
            ..kernel!(
                native $file, libs: [EIGHT_COPIES],
                types: ["T"], constants: [], params: Params,
                reads: ["input: T", "filter_values: T"], writes: [$filters, "output: vec4<u32>"],
            )
        }
    };
}
pub(super) use eight_copies;

static NCHW_TO_NHWC: KernelSource = eight_copies!("conv/nchw_to_nhwc", "repacked: vec4<u32>");

params! {
    struct Params {
        // What there is to be copied, in vec8s.
        total: u32,
        pixels: u32,
        // Of a block that neighbouring invocations copy: pixels, and groups of eight channels of each.
        block_pixels: u32,
        block_vec8s: u32,
        groups: u32,
        // Of a group, in the images and in the copy.
        channels: u32,
        channels_out: u32,
        interleaved: u32,
        input_offset: u32,
        // Of the filters, which have workgroups of their own: the first workgroup, vec8s, and places of a filter.
        first_filters: u32,
        total_filters: u32,
        places: u32,
        filter_offset: u32,
    }
}

/// Numbers of f16 in 16 bytes, which are copied, read and written at once.
pub(super) const EIGHT: usize = 8;

fn variant() -> Variant {
    Variant::new(&NCHW_TO_NHWC, [DType::F16], [])
}

pub(super) fn variants() -> Vec<Variant> {
    vec![variant()]
}

/// Pixels, and groups of eight channels of each, of the block that neighbouring invocations copy: 32 of both in all where
/// such blocks come out even, else all pixels of one group.
fn block(pixels: usize, vec8s: usize) -> [usize; 2] {
    let fits = |block: &[usize; 2]| pixels.is_multiple_of(block[0]) && vec8s.is_multiple_of(block[1]);
    [[8, 4], [16, 2]].into_iter().find(fits).unwrap_or([pixels, 1])
}

/// Scratch memory for so many times eight adjacent channels of f16.
pub(super) fn scratch_of_vec8s(ctx: &OpContext, op: &'static str, total: usize) -> BackendResult<Window> {
    let bytes = checked_product(op, "scratch", &[total, EIGHT, DType::F16.size()])?;
    Ok(ctx.output(&ctx.scratch(op, bytes)?, DType::F16))
}

/// The workgroup with which those of the filters begin, and the grid of all, of kernels that copy so many vec8s of images and
/// of filters.
pub(super) fn grid(op: &'static str, images: usize, filters: usize) -> BackendResult<(usize, [u32; 3])> {
    let [of_images, of_filters] = [images, filters].map(|total| total.div_ceil(WORKGROUP));
    Ok((of_images, linear_grid(op, of_images + of_filters)?))
}

/// The source with `channels` channels in each group, a multiple of eight, 0 for those that there aren't; and
/// the filters likewise, if they aren't those of a transposition.
pub(super) fn copy(
    ctx: &OpContext,
    op: &'static str,
    job: &Job,
    channels: usize,
) -> BackendResult<(Window, Option<Window>)> {
    let &ConvGather { batch, groups, filters, filter, source: [height, width], layout, .. } = &job.gather;
    let pixels = checked_product(op, "pixels", &[height, width])?;
    let places = checked_product(op, "filter", &filter)?;
    let total = checked_product(op, "scratch", &[batch, pixels, groups, channels / EIGHT])?;
    let filters = if job.transposed { 0 } else { filters };
    let total_filters = checked_product(op, "scratch", &[groups, filters, places, channels / EIGHT])?;
    let copy = scratch_of_vec8s(ctx, op, total)?;
    let repacked = if job.transposed { None } else { Some(scratch_of_vec8s(ctx, op, total_filters)?) };
    let (first_filters, grid) = grid(op, total, total_filters)?;
    let [block_pixels, block_vec8s] = block(pixels, groups.saturating_mul(channels / EIGHT));
    let [total, pixels, block_pixels, first_filters] =
        dims(op, "pixels", [total, pixels, block_pixels, first_filters])?;
    let [block_vec8s, channels, channels_out] =
        dims(op, "channels", [block_vec8s, job.gather.channels, channels])?;
    let [total_filters, places] = dims(op, "filter", [total_filters, places])?;
    let params = Params {
        total,
        pixels,
        block_pixels,
        block_vec8s,
        groups: dim(op, "groups", groups)?,
        channels,
        channels_out,
        interleaved: u32::from(layout == ImageLayout::Nhwc),
        input_offset: job.input.offset,
        first_filters,
        total_filters,
        places,
        filter_offset: job.filter.offset,
    };
    let windows = [&job.input, &job.filter, repacked.as_ref().unwrap_or(&copy)];
    ctx.launch(op, &variant(), &windows, &copy, &params, grid)?;
    Ok((copy, repacked))
}

#[cfg(test)]
mod tests {
    use super::block;

    #[test]
    fn blocks_come_out_even() {
        assert_eq!(
            [block(56 * 56, 8), block(49 * 16, 6), block(28 * 4, 3), block(49, 8)],
            [[8, 4], [16, 2], [112, 1], [49, 1]]
        );
        for (pixels, vec8s) in (1..100).flat_map(|pixels| (1..20).map(move |vec8s| (pixels, vec8s))) {
            let [of_pixels, of_vec8s] = block(pixels, vec8s);
            assert_eq!((pixels % of_pixels, vec8s % of_vec8s), (0, 0), "{pixels} pixels of {vec8s}");
        }
    }
}
