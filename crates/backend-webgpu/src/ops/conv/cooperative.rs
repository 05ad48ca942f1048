//! Convolutions of f16 on matrix units.

use backend_api::desc::{ConvGather, ConvShape, ImageLayout, Window as FilterWindow};
use backend_api::{Activation, BackendResult, DType, checked_product};

use super::params::{Params, inverse, is_regular};
use super::proof::check_numbers;
use super::{Job, factors, interleave};
use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel};
use crate::ops::matmul::{CooperativeTile, activation_code, unrolled_multiply};
use crate::ops::self_test::OP;

static COOPERATIVE: KernelSource = KernelSource {
    unrolled: Some(unrolled_multiply),
    cooperative: true,
    ..kernel!(
        native "conv/cooperative",
        libs: [GRID, QUOTIENT, SPECIAL, UNARY, ACTIVATE, CONV, CORNER, FRAGMENTS],
        types: ["T"],
        constants: [
            "TILE_M",
            "TILE_N",
            "TILE_K",
            "SUBGROUPS_M",
            "SUBGROUPS_N",
            "TRANS_A",
            "TRANS_B",
            "ACTIVATION",
        ],
        reads: 3,
        writes: 2,
        params: Params,
    )
};

/// Channels that are read at once.
const EIGHT: usize = 8;

fn variant(tile: CooperativeTile, activation: Activation) -> Variant {
    let [m, n, k, rows, columns] = tile.constants();
    // Filters and pixels both have their channels adjacent.
    Variant::new(&COOPERATIVE, [DType::F16], [m, n, k, rows, columns, 0, 1, activation_code(activation)])
        .with_rolled_loops()
}

pub(super) fn variants() -> Vec<Variant> {
    let tiles = CooperativeTile::ALL.into_iter();
    tiles.flat_map(|tile| Activation::ALL.iter().map(move |&activation| variant(tile, activation))).collect()
}

/// Whether matrix units can make a convolution.
pub(super) fn is_possible(ctx: &Context, job: &Job) -> bool {
    let has_taps = job.gather.taps() > 0;
    job.dtype == DType::F16 && ctx.gpu.cooperative_matrices && is_regular(&job.gather) && has_taps
}

/// Whether a tile fits the device and is right there.
pub(super) fn works(ctx: &Context, tile: CooperativeTile) -> bool {
    tile.fits(&ctx.gpu.device.limits())
        && ctx.proofs.holds(&variant(tile, Activation::Identity), || check(ctx, tile))
}

/// The tile for a convolution, if matrix units can make it and it is worth it.
pub(super) fn fastest(ctx: &Context, job: &Job) -> Option<CooperativeTile> {
    let &ConvGather { batch, groups, filters, channels, .. } = &job.gather;
    let rows = batch.saturating_mul(job.gather.pixels());
    let work = rows.saturating_mul(filters).saturating_mul(job.gather.taps());
    // Matrix units would spend most of their time on zeros, or the copies would take longer.
    if !is_possible(ctx, job) || filters < 8 || channels < 2 || work < 1 << 22 {
        return None;
    }
    let taps = channels.next_multiple_of(EIGHT) * job.gather.filter[0] * job.gather.filter[1];
    let time = |tile: &CooperativeTile| tile.time([filters, rows, taps, groups], ctx.gpu.multiprocessors());
    // Where it fills the device, it is ahead of larger ones by more than the estimate for matrices says: there is more to
    // wait for.
    let shallow = CooperativeTile::SHALLOW;
    let fills = 2 * filters > shallow.m
        && shallow.count(filters, rows).saturating_mul(groups) >= ctx.gpu.multiprocessors();
    let tile = if fills { shallow } else { CooperativeTile::ALL.into_iter().min_by_key(time)? };
    works(ctx, tile).then_some(tile)
}

pub(super) fn launch(ctx: &Context, op: &'static str, job: &Job, tile: CooperativeTile) -> BackendResult<()> {
    let channels = job.gather.channels.next_multiple_of(EIGHT);
    let whole = job.gather.layout == ImageLayout::Nhwc && channels == job.gather.channels;
    let (mut input, mut filter) = (job.input.clone(), job.filter.clone());
    if !whole || !input.offset.is_multiple_of(EIGHT as u32) {
        input = interleave::copy(ctx, op, job, channels)?;
    }
    if !whole || job.transposed || !filter.offset.is_multiple_of(EIGHT as u32) {
        filter = factors::copy(ctx, op, job, channels, true)?;
    }
    let padded = Job { gather: padded(&job.gather, channels), input, filter, ..job.clone() };
    let params = params(op, &padded, job.gather.layout, tile)?;
    let Job { input, filter, bias, output, .. } = &padded;
    let variant = variant(tile, job.activation);
    let grid = linear_grid(op, params.tiles as usize)?;
    ctx.launch(op, &variant, &[filter, input, bias, output], output, &params, grid)
}

/// The same with adjacent channels, so many in a group.
fn padded(gather: &ConvGather, channels: usize) -> ConvGather {
    let mut padded = *gather;
    (padded.channels, padded.layout) = (channels, ImageLayout::Nhwc);
    padded
}

/// For a result in the given order.
fn params(op: &'static str, job: &Job, result: ImageLayout, tile: CooperativeTile) -> BackendResult<Params> {
    let mut params = Params::new(op, job)?;
    let (tiles_m, tiles_n) = (job.gather.filters.div_ceil(tile.m), (params.rows as usize).div_ceil(tile.n));
    params.interleaved_out = u32::from(result == ImageLayout::Nhwc);
    params.per_outer = inverse(job.gather.channels / EIGHT);
    params.tiles_m = dim(op, "tiles", tiles_m)?;
    params.tiles_n = dim(op, "tiles", tiles_n)?;
    params.tiles = dim(op, "tiles", checked_product(op, "tiles", &[tiles_m, tiles_n, job.gather.groups])?)?;
    Ok(params)
}

/// Convolves images of more than a tile and more than two steps, none of them whole.
fn check(ctx: &Context, tile: CooperativeTile) -> BackendResult<()> {
    let (channels, filters, side) = (3 * EIGHT, tile.m + 24, [9, tile.n / 16 + 3]);
    let window = FilterWindow::new([3, 3]).with_padding([1, 1]);
    let shape = ConvShape::new([2, channels, side[0], side[1]], filters, window);
    let shape = shape.with_layout(ImageLayout::Nhwc);
    let factor_at = |filter: usize, place: usize, channel: usize| (filter * 9 + place) * channels + channel;
    check_numbers(ctx, &shape, factor_at, |test, job| {
        let params = params(OP, job, ImageLayout::Nhwc, tile)?;
        let windows = [&job.filter, &job.input, &job.bias, &job.output, &job.output];
        let grid = linear_grid(OP, params.tiles as usize)?;
        test.launch(&variant(tile, Activation::Identity), &windows, &params, grid)
    })
}
