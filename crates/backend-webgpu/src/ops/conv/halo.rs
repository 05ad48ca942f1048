//! 3×3 convolutions of f16 on tensor cores that stage each tile of pixels once for all nine taps.

use std::fmt;

use backend_api::desc::{ConvShape, ImageLayout, ImageShape, Window as FilterWindow};
use backend_api::support::{ConvGather, GatherAxis, checked_product};
use backend_api::{Activation, BackendResult, DType};

use super::Job;
use super::cooperative::padded;
use super::halo_step::{CHANNELS, Constants, SIDE, multiply};
use super::nchw_to_nhwc::{EIGHT, scratch_of_vec8s};
use super::params::inverse;
use super::self_test::check_numbers;
use crate::device::h200;
use crate::kernels::{KernelSource, Variant, kernel, native, params};
use crate::ops::has_room;
use crate::ops::op_context::{OpContext, dim, dims, invocation_grid, linear_grid};
use crate::ops::shared::self_test::OP;
use crate::ops::shared::tensor_cores::{FRAGMENT, SUBGROUP};
use crate::ops::shared::tile::StepTime;
use crate::recorder::Window;

pub(super) static HALO: KernelSource = KernelSource {
    unrolled: native(multiply),
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "conv/halo", libs: [WORKGROUP_TILES, QUOTIENT, ACTIVATE, HALVES, FRAGMENT_ELEMENTS],
        types: ["T"], constants: Constants, params: Params,
        reads: ["input: vec4<u32>", "weights: vec4<u32>", "bias: T"], writes: ["output: vec4<u32>"],
    )
};

params! {
    struct Params {
        images: u32,
        channels: u32,
        filters: u32,
        height: u32,
        width: u32,
        // Cells of a row of a tile, and those of a whole tile. From one fragment of pixels to the next.
        pitch: u32,
        cells: u32,
        fragment_step: u32,
        // Pixels from one tile to the next in a row of cells, rows of cells from one to the next below, and tiles
        // across: for tiles of pixels that follow each other TILE_P, 0 and all of them.
        tile_columns: u32,
        tile_rows: u32,
        tiles_across: u32,
        tiles_f: u32,
        tiles: u32,
        biased: u32,
        input_offset: u32,
        weights_offset: u32,
        bias_offset: u32,
        output_offset: u32,
        // 1 / pitch, 1 / (height + 1).
        per_pitch: f32,
        per_image: f32,
    }
}

static WEIGHT_FRAGMENTS: KernelSource = KernelSource {
    cooperative: true,
    ..kernel!(
        native "conv/weight_fragments", libs: [INVOCATION_OUTPUTS],
        types: [], constants: [], params: FragmentParams,
        reads: ["filter_values: vec2<u32>"], writes: ["fragments: vec4<u32>"],
    )
};

params! {
    struct FragmentParams {
        // Invocations of all fragments.
        total: u32,
        filters: u32,
        channels: u32,
        filter_offset: u32,
    }
}

/// Bytes of a cell in workgroup memory: the channels of a step, and what keeps cells in different banks.
const CELL_BYTES: usize = 2 * (CHANNELS + EIGHT);

/// Cells of a row for which a tile of pixels that follow each other has room.
const MAX_PITCH: usize = 65;

/// Rows of cells, and images, of which lib/quotient finds the right one.
const MAX_QUOTIENT: usize = 1 << 22;

/// A tile of pixels and filters, and its parts across them, one for each subgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HaloTile {
    pixels: usize,
    filters: usize,
    parts: [usize; 2],
    /// For the channels of a step.
    step: StepTime,
}

/// How a plane of cells is divided into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// Into pixels that follow each other, from row to row.
    Runs,
    /// Into blocks of the rows of fragments.
    Blocks,
}

impl HaloTile {
    /// Every tile, largest first. On a device of 132 compute units with room for two on each, those of 160 filters
    /// come out even for the 320 channels of 64 × 64 pixels that diffusion models have.
    pub(super) const ALL: [Self; 3] = [
        Self::new([128, 160], [2, 2], 3700, 4850),
        Self::new([128, 128], [2, 2], 2750, 3600),
        Self::new([128, 64], [2, 2], 1550, 2400),
    ];

    const fn new([pixels, filters]: [usize; 2], parts: [usize; 2], alone: usize, paired: usize) -> Self {
        Self { pixels, filters, parts, step: StepTime::new(alone, paired) }
    }

    /// Cells that there is room for in workgroup memory.
    const fn cells(self) -> usize {
        self.pixels + (SIDE - 1) * (MAX_PITCH + 1)
    }

    const fn threads(self) -> usize {
        self.parts[0] * self.parts[1] * SUBGROUP
    }

    fn fits(self, limits: &wgpu::Limits) -> bool {
        has_room(limits, self.threads(), self.cells() * CELL_BYTES)
    }

    /// The kernel for results that are planes or not.
    fn variant(self, planes: bool, activation: Activation) -> Variant {
        let Self { pixels: tile_p, filters: tile_f, parts: [parts_p, parts_f], .. } = self;
        let constants =
            Constants { tile_p, tile_f, parts_p, parts_f, cells: self.cells(), planes, activation };
        Variant::new(&HALO, [DType::F16], constants).with_rolled_loops()
    }

    /// How many tiles of pixels there are, by the better way to divide them.
    fn division(self, gather: &ConvGather, layout: ImageLayout) -> (Division, usize) {
        let [height, width] = gather.result;
        let rows = gather.batch.saturating_mul(height + 1);
        // Neither the padding of the last row nor the last image's is of a tile.
        let last = rows.saturating_mul(width + 1).saturating_sub(width + 2);
        let runs = last.div_ceil(self.pixels);
        let down = rows.saturating_sub(1).div_ceil(self.pixels / FRAGMENT);
        let blocks = down.saturating_mul(width.div_ceil(FRAGMENT));
        let can_run = width < MAX_PITCH && !are_planes(layout);
        if can_run && runs < blocks { (Division::Runs, runs) } else { (Division::Blocks, blocks) }
    }

    /// Nanoseconds of a convolution, and of the launch that copies its weights.
    fn time(self, gather: &ConvGather, compute_units: usize) -> usize {
        let (_, tiles) = self.division(gather, gather.layout);
        let tiles = tiles.saturating_mul(gather.filters.div_ceil(self.filters));
        h200::LAUNCH.saturating_add(self.step.of(tiles, gather.channels / CHANNELS, compute_units))
    }

    /// Whether it can make a convolution, and is right on the device.
    pub(super) fn is_possible(self, ctx: &OpContext, job: &Job) -> bool {
        fits(ctx, job) && self.is_verified(ctx, job.gather.layout)
    }

    /// Whether it fits the device and is right there.
    pub(super) fn is_verified(self, ctx: &OpContext, layout: ImageLayout) -> bool {
        let variant = self.variant(are_planes(layout), Activation::Identity);
        self.fits(&ctx.gpu().limits) && ctx.is_right(&variant, move |ctx| self.check(ctx, layout))
    }

    /// Makes a convolution for which this [is possible](Self::is_possible).
    pub(super) fn launch(self, ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<()> {
        let adjacent = padded(ctx, op, job, CHANNELS)?;
        let adjacent = Job { filter: weight_fragments(ctx, op, &adjacent)?, ..adjacent };
        let params = self.params(op, &adjacent, job.gather.layout)?;
        let Job { input, filter, bias, output, .. } = &adjacent;
        let variant = self.variant(are_planes(job.gather.layout), job.activation);
        let grid = linear_grid(op, params.tiles as usize)?;
        ctx.launch(op, &variant, &[input, filter, bias], output, &params, grid)
    }

    /// The parameters for images of adjacent channels and results of a layout.
    fn params(self, op: &'static str, job: &Job, layout: ImageLayout) -> BackendResult<Params> {
        let gather = &job.gather;
        let [height, width] = gather.result;
        let (division, tiles_p) = self.division(gather, layout);
        let rows = self.pixels / FRAGMENT;
        let (pitch, cells) = match division {
            Division::Runs => (width + 1, self.pixels + (SIDE - 1) * (width + 2)),
            Division::Blocks => (FRAGMENT + SIDE - 1, (FRAGMENT + SIDE - 1) * (rows + SIDE - 1)),
        };
        let [fragment_step, tile_columns, tile_rows, tiles_across] = match division {
            Division::Runs => [FRAGMENT, self.pixels, 0, tiles_p],
            Division::Blocks => [pitch, FRAGMENT, rows, width.div_ceil(FRAGMENT)],
        };
        let tiles_f = gather.filters.div_ceil(self.filters);
        let tiles = checked_product(op, "tiles", &[tiles_p, tiles_f])?;
        let (per_pitch, per_image) = (inverse(pitch), inverse(height + 1));
        let [height, width, pitch, cells, fragment_step] =
            dims(op, "pixels", [height, width, pitch, cells, fragment_step])?;
        let [tile_columns, tile_rows, tiles_across, tiles_f, tiles] =
            dims(op, "tiles", [tile_columns, tile_rows, tiles_across, tiles_f, tiles])?;
        Ok(Params {
            images: dim(op, "images", gather.batch)?,
            channels: dim(op, "channels", gather.channels)?,
            filters: dim(op, "filters", gather.filters)?,
            height,
            width,
            pitch,
            cells,
            fragment_step,
            tile_columns,
            tile_rows,
            tiles_across,
            tiles_f,
            tiles,
            biased: u32::from(job.biased),
            input_offset: job.input.offset,
            weights_offset: job.filter.offset,
            bias_offset: job.bias.offset,
            output_offset: job.output.offset,
            per_pitch,
            per_image,
        })
    }

    /// Convolves images of more than a tile and several steps, whose rows are no whole fragments.
    fn check(self, ctx: &OpContext, layout: ImageLayout) -> BackendResult<()> {
        let window = FilterWindow::new([SIDE, SIDE]).with_padding([1, 1]);
        let shape = ConvShape::new(ImageShape::nchw([2, 3 * CHANNELS, 11, 24]), self.filters + EIGHT, window);
        let channels = shape.channels;
        // As in fragments: an invocation of four has four channels.
        let weight_at = |filter: usize, place: usize, channel: usize| {
            let (block, row) = (filter / FRAGMENT, filter % FRAGMENT);
            let fragment = (block * SIDE * SIDE + place) * (channels / FRAGMENT) + channel / FRAGMENT;
            let invocation = row % EIGHT * 4 + channel % FRAGMENT / 4;
            (fragment * SUBGROUP + invocation) * EIGHT + row / EIGHT * 4 + channel % 4
        };
        let layouts = [ImageLayout::Nhwc, layout];
        check_numbers(ctx, (&shape, layouts, DType::F16), weight_at, |test, job| {
            let params = self.params(OP, job, layout)?;
            let windows = [&job.input, &job.filter, &job.bias, &job.output];
            let grid = linear_grid(OP, params.tiles as usize)?;
            test.launch(&self.variant(are_planes(layout), Activation::Identity), &windows, &params, grid)
        })
    }
}

/// Such as `128x160`: pixels and filters.
impl fmt::Display for HaloTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.pixels, self.filters)
    }
}

/// The filters in the order in which the kernel has them in fragments.
fn weight_fragments(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<Window> {
    let &ConvGather { channels, filters, .. } = &job.gather;
    let fragments = [filters.div_ceil(FRAGMENT), SIDE * SIDE, channels / FRAGMENT];
    let total = checked_product(op, "scratch", &[fragments[0], fragments[1], fragments[2], SUBGROUP])?;
    let copy = scratch_of_vec8s(ctx, op, total)?;
    let params = FragmentParams {
        total: dim(op, "filter", total)?,
        filters: dim(op, "filters", filters)?,
        channels: dim(op, "channels", channels)?,
        filter_offset: job.filter.offset,
    };
    let grid = invocation_grid(op, total)?;
    ctx.launch(op, &Variant::new(&WEIGHT_FRAGMENTS, [], []), &[&job.filter], &copy, &params, grid)?;
    Ok(copy)
}

pub(super) fn variants() -> Vec<Variant> {
    let tiles = HaloTile::ALL.into_iter().flat_map(|tile| [(tile, false), (tile, true)]);
    let all = tiles.flat_map(|(tile, planes)| Activation::ALL.iter().map(move |&a| tile.variant(planes, a)));
    all.chain([Variant::new(&WEIGHT_FRAGMENTS, [], [])]).collect()
}

/// Whether results of a layout are planes.
fn are_planes(layout: ImageLayout) -> bool {
    layout != ImageLayout::Nhwc
}

/// The tile that is estimated to be the fastest for a convolution that the kernel can make where it is right, and its
/// nanoseconds.
pub(super) fn fastest(ctx: &OpContext, job: &Job) -> Option<(HaloTile, usize)> {
    if !fits(ctx, job) {
        return None;
    }
    let compute_units = ctx.profile().compute_units;
    let fitting = HaloTile::ALL.into_iter().filter(|tile| tile.fits(&ctx.gpu().limits));
    let times = fitting.map(|tile| (tile, tile.time(&job.gather, compute_units)));
    times.min_by_key(|&(_, time)| time)
}

/// Whether the device has what the kernel needs, images stay as large as they are, and results are whole
/// vectors.
fn fits(ctx: &OpContext, job: &Job) -> bool {
    // No browser offers tensor cores.
    if cfg!(target_family = "wasm") {
        return false;
    }
    let gather = &job.gather;
    let &ConvGather { batch, groups, channels, filters, source, result: [height, width], layout, .. } =
        gather;
    let moves_by_one =
        |axis: &GatherAxis| (axis.stride, axis.dilation, axis.before, axis.transposed) == (1, 1, 1, false);
    let adjacent = if are_planes(layout) { width } else { filters };
    let rows = batch.saturating_mul(height + 1);
    // Cells are counted in u32, those of the last tile too.
    let cells = rows.saturating_mul(width + FRAGMENT + 1).saturating_add(1 << 16);
    ctx.gpu().takes_spirv
        && ctx.gpu().cooperative_matrices
        && job.dtype == DType::F16
        && !job.transposed
        && groups == 1
        && job.first_row == 0
        && gather.filter == [SIDE; 2]
        && gather.axes.iter().all(moves_by_one)
        && source == gather.result
        && channels > 0
        && channels.is_multiple_of(CHANNELS)
        && adjacent.is_multiple_of(EIGHT)
        && job.output.offset.is_multiple_of(EIGHT as u32)
        && rows < MAX_QUOTIENT
        && u32::try_from(cells).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::plans::bounds::assert_room;

    #[test]
    fn workgroups_take_what_their_text_says() {
        for (tile, planes) in HaloTile::ALL.into_iter().flat_map(|tile| [(tile, false), (tile, true)]) {
            assert_room(&tile.variant(planes, Activation::Identity), 0, |limits| tile.fits(limits));
        }
    }

    /// A plane of cells has a row of padding behind each image, and where pixels follow each other, a cell behind each
    /// row.
    #[test]
    fn tiles_reach_the_last_pixel_and_no_further() {
        let extents = [1, 15, 16, 17, 63, 64, 65, 130];
        for tile in HaloTile::ALL {
            for (height, width) in extents.iter().flat_map(|&height| extents.map(|width| (height, width))) {
                for (batch, layout) in
                    [(1, ImageLayout::Nhwc), (3, ImageLayout::Nhwc), (3, ImageLayout::Nchw)]
                {
                    let window = FilterWindow::new([SIDE, SIDE]).with_padding([1, 1]);
                    let image = ImageShape { batch, channels: CHANNELS, height, width };
                    let shape = ConvShape::new(image, 8, window).with_layout(layout);
                    let gather = ConvGather::forward("test", &shape).unwrap();
                    let [row, column] = [batch * (height + 1) - 2, width - 1];
                    let blocks = (row / (tile.pixels / 16) + 1) * (column / 16 + 1);
                    let runs = (row * (width + 1) + column) / tile.pixels + 1;
                    let follow = layout == ImageLayout::Nhwc && width <= 64;
                    let (division, tiles) = tile.division(&gather, layout);
                    let fewest = if follow { runs.min(blocks) } else { blocks };
                    assert_eq!(
                        (tiles, tiles == runs),
                        (fewest, division == Division::Runs || runs == blocks)
                    );
                    // A run, or a block, with the cells around it.
                    let cells = match division {
                        Division::Runs => tile.pixels + 2 * (width + 2),
                        Division::Blocks => (16 + 2) * (tile.pixels / 16 + 2),
                    };
                    assert!(cells <= tile.cells(), "{cells} cells of {tile}");
                }
            }
        }
    }
}
