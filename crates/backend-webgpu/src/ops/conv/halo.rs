//! 3×3 convolutions of f16 on tensor cores that stage each tile of pixels once for all nine taps.

use backend_api::desc::{ConvShape, ImageLayout, ImageShape, Window as FilterWindow};
use backend_api::support::{ConvGather, GatherAxis, checked_product};
use backend_api::{Activation, BackendResult, DType};

use super::Job;
use super::cooperative::padded;
use super::nchw_to_nhwc::EIGHT;
use super::params::inverse;
use super::self_test::check_numbers;
use crate::kernels::{KernelSource, MAX_CONSTANTS, Target, Variant, kernel, native, params};
use crate::ops::has_room;
use crate::ops::matmul::activation_code;
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::shared::self_test::OP;
use crate::ops::shared::tensor_cores::{FRAGMENT, SUBGROUP, declare_sums};
use crate::ops::shared::text::{lines, pairs};
use crate::ops::shared::tile::StepTime;

static HALO: KernelSource = KernelSource {
    unrolled: native(multiply),
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "conv/halo",
        libs: [GRID, QUOTIENT, SPECIAL, UNARY, ACTIVATE, FRAGMENT_ELEMENTS],
        types: ["T"],
        constants: ["TILE_P", "TILE_F", "PARTS_P", "PARTS_F", "CELLS", "PLANES", "ACTIVATION"],
        reads: 3,
        writes: 1,
        params: Params,
    )
};

params! {
    struct Params {
        images: u32,
        channels: u32,
        filters: u32,
        height: u32,
        width: u32,
        pitch: u32,
        cells: u32,
        fragment_step: u32,
        tile_columns: u32,
        tile_rows: u32,
        tiles_across: u32,
        tiles_f: u32,
        tiles: u32,
        biased: u32,
        input_offset: u32,
        filter_offset: u32,
        bias_offset: u32,
        output_offset: u32,
        per_pitch: f32,
        per_image: f32,
    }
}

/// Rows and columns of a filter.
const SIDE: usize = 3;

/// Channels of a step.
const CHANNELS: usize = FRAGMENT;

/// Bytes of a cell in workgroup memory: the channels of a step, and what keeps cells in different banks.
const CELL_BYTES: usize = 2 * (CHANNELS + EIGHT);

/// Cells of a row for which a tile of pixels that follow each other has room.
const MAX_PITCH: usize = 65;

/// Rows of cells, and images, of which lib/quotient finds the right one.
const MAX_QUOTIENT: usize = 1 << 22;

/// Pixels and filters of a tile. On a device of 132 compute units with room for two on each, tiles of so many
/// come out even for the 320 channels of 64 × 64 pixels that diffusion models have.
const PIXELS: usize = 128;
const FILTERS: usize = 160;

/// Parts of a tile across pixels and across filters, one for each subgroup.
const PARTS: [usize; 2] = [2, 2];

const THREADS: usize = PARTS[0] * PARTS[1] * SUBGROUP;

/// Cells that there is room for in workgroup memory.
const CELLS: usize = PIXELS + (SIDE - 1) * (MAX_PITCH + 1);

/// What a tile takes for the channels of a step.
const STEP: StepTime = StepTime { alone: 4750, paired: 6700 };

/// How a plane of cells is divided into tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// Into pixels that follow each other, from row to row.
    Runs,
    /// Into blocks of the rows of fragments.
    Blocks,
}

/// The kernel for results that are planes or not.
fn variant(planes: bool, activation: Activation) -> Variant {
    let [p, f, rows, columns, cells] = [PIXELS, FILTERS, PARTS[0], PARTS[1], CELLS].map(|size| size as u32);
    let constants = [p, f, rows, columns, cells, u32::from(planes), activation_code(activation)];
    Variant::new(&HALO, [DType::F16], constants).with_rolled_loops()
}

pub(super) fn variants() -> Vec<Variant> {
    let both = [false, true].into_iter();
    both.flat_map(|planes| Activation::ALL.iter().map(move |&a| variant(planes, a))).collect()
}

/// Whether results of a layout are planes.
fn are_planes(layout: ImageLayout) -> bool {
    layout != ImageLayout::Nhwc
}

/// How many tiles of pixels there are, by the better way to divide them.
fn division(gather: &ConvGather, layout: ImageLayout) -> (Division, usize) {
    let [height, width] = gather.result;
    let rows = gather.batch.saturating_mul(height + 1);
    // Neither the padding of the last row nor the last image's is of a tile.
    let last = rows.saturating_mul(width + 1).saturating_sub(width + 2);
    let runs = last.div_ceil(PIXELS);
    let down = rows.saturating_sub(1).div_ceil(PIXELS / FRAGMENT);
    let blocks = down.saturating_mul(width.div_ceil(FRAGMENT));
    let can_run = width < MAX_PITCH && !are_planes(layout);
    if can_run && runs < blocks { (Division::Runs, runs) } else { (Division::Blocks, blocks) }
}

/// Nanoseconds of a convolution that the kernel can make where it is right.
pub(super) fn time(ctx: &OpContext, job: &Job) -> Option<usize> {
    let gather = &job.gather;
    if !fits(ctx, job) {
        return None;
    }
    let (_, tiles) = division(gather, gather.layout);
    let tiles = tiles.saturating_mul(gather.filters.div_ceil(FILTERS));
    Some(STEP.of(tiles, gather.channels / CHANNELS, ctx.gpu().profile.compute_units))
}

/// Whether the kernel can make a convolution, and is right on the device.
pub(super) fn is_possible(ctx: &OpContext, job: &Job) -> bool {
    fits(ctx, job) && is_verified(ctx, job.gather.layout)
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
        && has_room(&ctx.gpu().limits, THREADS, CELLS * CELL_BYTES)
}

/// Whether the kernel is right on a device that has what it needs.
pub(super) fn is_verified(ctx: &OpContext, layout: ImageLayout) -> bool {
    let variant = variant(are_planes(layout), Activation::Identity);
    ctx.state.self_tests.pass(&variant, || check(ctx, layout))
}

/// Makes a convolution for which this [is possible](is_possible).
pub(super) fn launch(ctx: &OpContext, op: &'static str, job: &Job) -> BackendResult<()> {
    let adjacent = padded(ctx, op, job, CHANNELS)?;
    let params = params_of(op, &adjacent, job.gather.layout)?;
    let Job { input, filter, bias, output, .. } = &adjacent;
    let variant = variant(are_planes(job.gather.layout), job.activation);
    let grid = linear_grid(op, params.tiles as usize)?;
    ctx.launch(op, &variant, &[input, filter, bias], output, &params, grid)
}

/// The parameters for images of adjacent channels and results of a layout.
fn params_of(op: &'static str, job: &Job, layout: ImageLayout) -> BackendResult<Params> {
    let gather = &job.gather;
    let [height, width] = gather.result;
    let (division, tiles_p) = division(gather, layout);
    let rows = PIXELS / FRAGMENT;
    let (pitch, cells) = match division {
        Division::Runs => (width + 1, PIXELS + (SIDE - 1) * (width + 2)),
        Division::Blocks => (FRAGMENT + SIDE - 1, (FRAGMENT + SIDE - 1) * (rows + SIDE - 1)),
    };
    let [fragment_step, tile_columns, tile_rows, tiles_across] = match division {
        Division::Runs => [FRAGMENT, PIXELS, 0, tiles_p],
        Division::Blocks => [pitch, FRAGMENT, rows, width.div_ceil(FRAGMENT)],
    };
    let tiles_f = gather.filters.div_ceil(FILTERS);
    Ok(Params {
        images: dim(op, "images", gather.batch)?,
        channels: dim(op, "channels", gather.channels)?,
        filters: dim(op, "filters", gather.filters)?,
        height: dim(op, "pixels", height)?,
        width: dim(op, "pixels", width)?,
        pitch: dim(op, "pixels", pitch)?,
        cells: dim(op, "pixels", cells)?,
        fragment_step: dim(op, "pixels", fragment_step)?,
        tile_columns: dim(op, "tiles", tile_columns)?,
        tile_rows: dim(op, "tiles", tile_rows)?,
        tiles_across: dim(op, "tiles", tiles_across)?,
        tiles_f: dim(op, "tiles", tiles_f)?,
        tiles: dim(op, "tiles", checked_product(op, "tiles", &[tiles_p, tiles_f])?)?,
        biased: u32::from(job.biased),
        input_offset: job.input.offset,
        filter_offset: job.filter.offset,
        bias_offset: job.bias.offset,
        output_offset: job.output.offset,
        per_pitch: inverse(pitch),
        per_image: inverse(height + 1),
    })
}

/// Convolves images of more than a tile and several steps, whose rows are no whole fragments.
fn check(ctx: &OpContext, layout: ImageLayout) -> BackendResult<()> {
    let window = FilterWindow::new([SIDE, SIDE]).with_padding([1, 1]);
    let shape = ConvShape::new(
        ImageShape { batch: 2, channels: 3 * CHANNELS, height: 11, width: 24 },
        FILTERS + EIGHT,
        window,
    );
    let channels = shape.channels;
    let weight_at =
        |filter: usize, place: usize, channel: usize| (filter * SIDE * SIDE + place) * channels + channel;
    let layouts = [ImageLayout::Nhwc, layout];
    check_numbers(ctx, (&shape, layouts, DType::F16), weight_at, |test, job| {
        let params = params_of(OP, job, layout)?;
        let windows = [&job.input, &job.filter, &job.bias, &job.output];
        let grid = linear_grid(OP, params.tiles as usize)?;
        test.launch(&variant(are_planes(layout), Activation::Identity), &windows, &params, grid)
    })
}

/// The function `multiply`: the sums of a subgroup's part, over all channels, and what becomes of them. While a
/// tap is multiplied, the weights of the next are on their way into registers.
fn multiply(
    &[pixels, filters, parts_p, parts_f, cells, planes, ..]: &[u32; MAX_CONSTANTS],
    _: Target,
) -> String {
    let size = |size: u32| size as usize;
    let down = size(pixels / parts_p) / FRAGMENT;
    let across = size(filters / parts_f) / FRAGMENT;
    let fetches = (2 * size(cells)).div_ceil(size(parts_p * parts_f) * SUBGROUP);
    let turns = |line: &dyn Fn(usize) -> String| lines((0..fetches).map(line));
    let each = |line: &dyn Fn(usize) -> String| lines((0..across).map(line));
    let sources = turns(&|t| format!("let source_{t} = source_of(tile, index, {t}u);"));
    let fetch = turns(&|t| format!("let group_{t} = fetch(source_{t}, 2u * step);"));
    let stage = turns(&|t| format!("stage(index, {t}u, group_{t});"));
    let weights = each(&|j| {
        format!(
            "let weights_{j} = weights_at(tile, part.y, lane, {j}u);\n\
             var next_{j} = fetch_weights(weights_{j}, 0u);"
        )
    });
    let sums = declare_sums([down, across]);
    let taps: String = (0..SIDE).map(|s| tap(s, [down, across], planes == 1)).collect();
    let biases = each(&|j| {
        format!(
            "let low_{j} = bias_low(lane, first + {j}u * FRAGMENT);\n\
             let high_{j} = bias_high(lane, first + {j}u * FRAGMENT, low_{j});"
        )
    });
    let declare = each(&|j| format!("var v_{j}: Elements;"));
    let case = |i| {
        let elements = (0..across).map(|j| format!("v_{j} = elements(sum_{i}_{j});"));
        format!("case {i}u: {{ {} }}", elements.collect::<Vec<_>>().join(" "))
    };
    let cases = lines((0..down).map(case));
    let results = each(&|j| format!("let r_{j} = results(lane, v_{j}, low_{j}, high_{j});"));
    let write = each(&|j| format!("write_out(row, {j}u, r_{j});"));
    format!(
        "
fn multiply(tile: Tile, index: u32) {{
let subgroup = index / SUBGROUP;
let lane = index % SUBGROUP;
let part = vec2<u32>(subgroup / PARTS_F, subgroup % PARTS_F);
let fragment = params.fragment_step * STRIDE;
let part_cells = part.x * {down}u * fragment;
let to_next = params.channels / 4u;
let to_channels = 4u - {taps_but_one}u * to_next;
{sources}{weights}{sums}var at = 0u;
for (var step = 0u; step < params.channels / {CHANNELS}u; step++) {{
{fetch}workgroupBarrier();
{stage}workgroupBarrier();
for (var r = 0u; r < {SIDE}u; r++) {{
let line = part_cells + r * params.pitch * STRIDE;
{taps}}}
}}
let first = tile.filter_index + part.y * PART_F;
{biases}for (var i = 0u; i < {down}u; i++) {{
{declare}switch i {{
{cases}default: {{}}
}}
let row = row_of(tile, part, lane, i);
{results}{write}}}
}}
",
        taps_but_one = SIDE * SIDE - 1,
    )
}

/// Multiplies by the weights of column `s` of the filter, and asks for those of the next tap.
fn tap(s: usize, fragments: [usize; 2], planes: bool) -> String {
    let [down, across] = fragments;
    let (of_weights, of_pixels, load) =
        if planes { ("left", 'B', "coopLoad") } else { ("right", 'A', "coopLoadT") };
    let held = lines(
        (0..across)
            .map(|j| format!("let w_{j} = {of_weights}_operand_of(elements_of(next_{j}.xy, next_{j}.zw));")),
    );
    let advance = if s + 1 < SIDE {
        "at += to_next;\n".to_owned()
    } else {
        format!("at += select(to_next, to_channels, r == {}u);\n", SIDE - 1)
    };
    let next = lines((0..across).map(|j| format!("next_{j} = fetch_weights(weights_{j}, at);")));
    let pixels = lines((0..down).map(|i| {
        format!(
            "let p_{i} = {load}<coop_mat16x16<f16, {of_pixels}>>(&sh[line + {i}u * fragment + {s}u * STRIDE], STRIDE);"
        )
    }));
    let products = lines(pairs(fragments).map(|(i, j)| {
        let (a, b) =
            if planes { (format!("w_{j}"), format!("p_{i}")) } else { (format!("p_{i}"), format!("w_{j}")) };
        format!("sum_{i}_{j} = coopMultiplyAdd({a}, {b}, sum_{i}_{j});")
    }));
    format!("{{\n{held}{advance}{next}{pixels}{products}}}\n")
}
