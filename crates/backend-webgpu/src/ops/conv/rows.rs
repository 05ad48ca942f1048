//! Convolutions of f16 planes on matrix units, by filters that move by one pixel along a row.

use std::fmt;

use backend_api::desc::{ConvGather, ConvShape, GatherAxis, ImageLayout, Window as FilterWindow};
use backend_api::{Activation, BackendResult, DType, checked_product};

use super::params::{Axis, inverse};
use super::proof::check_numbers;
use super::row_step::multiply;
use super::{Job, factors};
use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, MAX_CONSTANTS, Variant, kernel, params};
use crate::ops::has_room;
use crate::ops::matmul::activation_code;
use crate::ops::matrix_units::{FRAGMENT, SUBGROUP};
use crate::ops::self_test::OP;

static ROWS: KernelSource = KernelSource {
    unrolled: Some(multiply),
    cooperative: true,
    ..kernel!(
        native "conv/rows",
        libs: [GRID, QUOTIENT, SPECIAL, UNARY, ACTIVATE],
        types: ["T"],
        constants: ["TILE_M", "TILE_N", "SUBGROUPS_M", "SUBGROUPS_N", "ACTIVATION"],
        reads: 3,
        writes: 1,
        params: Params,
    )
};

params! {
    pub(super) struct Params {
        pixels: u32,
        row_pixels: u32,
        height_out: u32,
        width_out: u32,
        groups: u32,
        filters: u32,
        channels: u32,
        height: u32,
        width: u32,
        filter_height: u32,
        step_y: u32,
        tap_y: i32,
        offset_y: i32,
        lowest_x: i32,
        first_x: i32,
        tap_x: i32,
        staged: u32,
        steps: u32,
        biased: u32,
        input_offset: u32,
        filter_offset: u32,
        bias_offset: u32,
        output_offset: u32,
        tiles_m: u32,
        tiles_n: u32,
        tiles: u32,
        per_row: f32,
        per_image: f32,
    }
}

/// Columns of the filters that the kernel is for.
pub(super) const FILTER_WIDTH: usize = 3;

/// How much further than a tile the taps of a filter's row reach at most.
const MAX_REACH: usize = 16;

/// The kernel divides fewer pixels than this without checks.
const MAX_PIXELS: usize = 1 << 22;

/// Filters and pixels of a workgroup's tile, and how its subgroups share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowTile {
    m: usize,
    n: usize,
    subgroups: [usize; 2],
}

impl RowTile {
    /// Every tile.
    pub(super) const ALL: [Self; 1] = [Self { m: 64, n: 64, subgroups: [4, 1] }];

    pub(super) fn constants(self) -> [u32; 4] {
        let [rows, columns] = self.subgroups;
        [self.m, self.n, rows, columns].map(|value| value as u32)
    }

    /// The tile of a variant, whose constants begin with [`constants`](Self::constants).
    pub(super) fn from_constants(&[m, n, rows, columns, ..]: &[u32; MAX_CONSTANTS]) -> Self {
        let [m, n, rows, columns] = [m, n, rows, columns].map(|value| value as usize);
        Self { m, n, subgroups: [rows, columns] }
    }

    /// Fragments of a subgroup's part, across filters and pixels.
    pub(super) fn fragments(self) -> [usize; 2] {
        let [rows, columns] = self.subgroups;
        [self.m / rows / FRAGMENT, self.n / columns / FRAGMENT]
    }

    /// How often an invocation fetches half of a pixel's channels in a step.
    pub(super) fn turns(self) -> usize {
        (self.n + MAX_REACH).div_ceil(self.threads() / 2)
    }

    fn threads(self) -> usize {
        self.subgroups[0] * self.subgroups[1] * SUBGROUP
    }

    fn workgroup_bytes(self) -> usize {
        (self.n + MAX_REACH) * (FRAGMENT + 8) * 2 + self.threads() / SUBGROUP * FRAGMENT * FRAGMENT * 4
    }

    fn fits(self, limits: &wgpu::Limits) -> bool {
        has_room(limits, self.threads(), self.workgroup_bytes())
    }
}

/// Such as `64x128`: filters and pixels.
impl fmt::Display for RowTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.m, self.n)
    }
}

fn variant(tile: RowTile, activation: Activation) -> Variant {
    let [m, n, rows, columns] = tile.constants();
    Variant::new(&ROWS, [DType::F16], [m, n, rows, columns, activation_code(activation)])
}

pub(super) fn variants() -> Vec<Variant> {
    let tiles = RowTile::ALL.into_iter();
    tiles.flat_map(|tile| Activation::ALL.iter().map(move |&activation| variant(tile, activation))).collect()
}

/// Whether the kernel can make a convolution.
pub(super) fn is_possible(ctx: &Context, job: &Job) -> bool {
    let &ConvGather { channels, filter, axes: [y, x], layout, result, .. } = &job.gather;
    job.dtype == DType::F16
        && ctx.gpu.cooperative_matrices
        && layout == ImageLayout::Nchw
        && (!y.transposed || y.stride == 1)
        && x.stride == 1
        && filter[0] > 0
        && filter[1] == FILTER_WIDTH
        && x.dilation <= MAX_REACH / (FILTER_WIDTH - 1)
        && channels > 0
        && channels.is_multiple_of(FRAGMENT)
        && result[1].is_multiple_of(4)
        && job.output.offset.is_multiple_of(4)
        && job.gather.batch.saturating_mul(result[0]).saturating_mul(row_pixels(&job.gather)) < MAX_PIXELS
}

/// Whether a tile fits the device and is right there.
pub(super) fn works(ctx: &Context, tile: RowTile) -> bool {
    tile.fits(&ctx.gpu.device.limits())
        && ctx.proofs.holds(&variant(tile, Activation::Identity), || check(ctx, tile))
}

/// The tile for a convolution, if the kernel can make it and it is worth it.
pub(super) fn fastest(ctx: &Context, job: &Job) -> Option<RowTile> {
    let &ConvGather { batch, groups, filters, result: [height, width], .. } = &job.gather;
    // Matrix units would spend most of their time on zeros, or on ends of rows that aren't used.
    if !is_possible(ctx, job) || filters < 32 || (row_pixels(&job.gather) - width) * 6 > width {
        return None;
    }
    // Fewer tiles would leave multiprocessors idle, for which conv/cooperative has smaller ones.
    let pixels = batch * height * row_pixels(&job.gather);
    let tiles = |tile: &RowTile| filters.div_ceil(tile.m) * pixels.div_ceil(tile.n) * groups;
    let tile = RowTile::ALL.into_iter().find(|tile| tiles(tile) >= ctx.gpu.multiprocessors())?;
    works(ctx, tile).then_some(tile)
}

/// Places along a row that taps have in relation to a pixel: the lowest and the highest.
fn reach(gather: &ConvGather) -> [i64; 2] {
    let GatherAxis { dilation, before, transposed, .. } = gather.axes[1];
    let (before, span) = (before as i64, ((FILTER_WIDTH - 1) * dilation) as i64);
    if transposed { [before - span, before] } else { [-before, span - before] }
}

/// Pixels of a row as the kernel thinks of it.
fn row_pixels(gather: &ConvGather) -> usize {
    let [lowest, highest] = reach(gather);
    let beyond = |distance: i64| distance.max(0).unsigned_abs() as usize;
    let pixels = (gather.source[1] + beyond(-lowest)).max(gather.result[1] + beyond(highest));
    pixels.next_multiple_of(4)
}

pub(super) fn launch(ctx: &Context, op: &'static str, job: &Job, tile: RowTile) -> BackendResult<()> {
    let rows = job.gather.filters.next_multiple_of(tile.m);
    let job = &Job { filter: factors::blocks(ctx, op, job, rows)?, ..job.clone() };
    let params = params(op, job, tile)?;
    let grid = linear_grid(op, params.tiles as usize)?;
    let windows = [&job.filter, &job.input, &job.bias];
    ctx.launch(op, &variant(tile, job.activation), &windows, &job.output, &params, grid)
}

fn params(op: &'static str, job: &Job, tile: RowTile) -> BackendResult<Params> {
    let gather = &job.gather;
    let &ConvGather { batch, groups, channels, filters, result: [height_out, _], .. } = gather;
    let [y, x] = [Axis::new(op, gather, 0)?, Axis::new(op, gather, 1)?];
    let [lowest, highest] = reach(gather).map(|place| place as i32);
    let row_pixels = row_pixels(gather);
    let pixels = checked_product(op, "pixels", &[batch, height_out, row_pixels])?;
    let (tiles_m, tiles_n) = (filters.div_ceil(tile.m), pixels.div_ceil(tile.n));
    let steps = checked_product(op, "filter", &[gather.filter[0], channels / FRAGMENT])?;
    Ok(Params {
        pixels: dim(op, "pixels", pixels)?,
        row_pixels: dim(op, "pixels", row_pixels)?,
        height_out: y.result,
        width_out: x.result,
        groups: dim(op, "groups", groups)?,
        filters: dim(op, "filters", filters)?,
        channels: dim(op, "channels", channels)?,
        height: y.source,
        width: x.source,
        filter_height: y.filter,
        step_y: y.step,
        tap_y: y.tap,
        offset_y: y.offset,
        lowest_x: lowest,
        first_x: x.offset - lowest,
        tap_x: x.tap,
        staged: dim(op, "pixels", tile.n)? + highest.abs_diff(lowest),
        steps: dim(op, "filter", steps)?,
        biased: u32::from(job.biased),
        input_offset: job.input.offset,
        filter_offset: job.filter.offset,
        bias_offset: job.bias.offset,
        output_offset: job.output.offset,
        tiles_m: dim(op, "tiles", tiles_m)?,
        tiles_n: dim(op, "tiles", tiles_n)?,
        tiles: dim(op, "tiles", checked_product(op, "tiles", &[tiles_m, tiles_n, groups])?)?,
        per_row: inverse(row_pixels),
        per_image: inverse(height_out),
    })
}

/// Convolves images of more than a tile, which is not whole.
fn check(ctx: &Context, tile: RowTile) -> BackendResult<()> {
    let (channels, filters, side) = (3 * FRAGMENT, tile.m + 24, [9, tile.n / 16 + 4]);
    let window = FilterWindow::new([3, FILTER_WIDTH]).with_padding([1, 1]);
    let shape = ConvShape::new([2, channels, side[0], side[1]], filters, window);
    // As factors::blocks puts them.
    let rows = filters.next_multiple_of(tile.m);
    let factor_at = |filter: usize, place: usize, channel: usize| {
        let block = (channel / FRAGMENT * 3 * FILTER_WIDTH + place) * (rows / FRAGMENT) + filter / FRAGMENT;
        (block * FRAGMENT + filter % FRAGMENT) * FRAGMENT + channel % FRAGMENT
    };
    check_numbers(ctx, &shape, factor_at, |test, job| {
        let params = params(OP, job, tile)?;
        let windows = [&job.filter, &job.input, &job.bias, &job.output];
        let grid = linear_grid(OP, params.tiles as usize)?;
        test.launch(&variant(tile, Activation::Identity), &windows, &params, grid)
    })
}
