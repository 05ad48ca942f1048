//! Convolution as a matrix product that is never written out.

use backend_api::desc::Conv2dDesc;
use backend_api::{BackendResult, DType, checked_product};

use super::tile::{TILE_CONSTANTS, Tile, tile_product};
use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel, params};

static IMPLICIT_GEMM: KernelSource = KernelSource {
    unrolled: Some(tile_product),
    ..kernel!(
        "conv/implicit_gemm",
        libs: [GRID, TILE_PRODUCT],
        types: [],
        constants: CONSTANTS,
        reads: 3,
        writes: 1,
        params: Params,
    )
};

params! {
    struct Params {
        filters: u32,
        columns: u32,
        pixels: u32,
        taps: u32,
        tiles_m: u32,
        tiles: u32,
        channels: u32,
        height: u32,
        width: u32,
        out_width: u32,
        filter_height: u32,
        filter_width: u32,
        stride_y: u32,
        stride_x: u32,
        padding_y: u32,
        padding_x: u32,
        input_offset: u32,
        filter_offset: u32,
        output_offset: u32,
    }
}

const CONSTANTS: [&str; 6] = {
    let [m, n, k, thread_m, thread_n] = TILE_CONSTANTS;
    [m, n, k, thread_m, thread_n, "VEC"]
};

fn variant(tile: Tile, vectors: bool) -> Variant {
    let [m, n, k, thread_m, thread_n] = tile.constants();
    Variant::new(&IMPLICIT_GEMM, [], [m, n, k, thread_m, thread_n, u32::from(vectors)])
}

pub(super) fn variants() -> Vec<Variant> {
    Tile::ALL.iter().flat_map(|&tile| [false, true].map(|vectors| variant(tile, vectors))).collect()
}

/// `output = input ∗ filter`.
pub(crate) fn conv2d(ctx: &Context, op: &'static str, desc: &Conv2dDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [input, filter, output] = ctx.resolve(op, &operands)?;
    let Some(output) = output else { return Ok(()) };
    let output = ctx.output(op, &output, DType::F32)?;
    let input = ctx.optional_input(op, input.as_ref(), DType::F32, &output)?;
    let filter = ctx.optional_input(op, filter.as_ref(), DType::F32, &output)?;

    let [batch, channels, height, width] = desc.input_shape;
    let [filters, _, filter_height, filter_width] = desc.filter_shape;
    let [_, _, out_height, out_width] = desc.output_shape;
    let pixels = checked_product(op, "pixels", &[out_height, out_width])?;
    let columns = checked_product(op, "pixels", &[batch, pixels])?;
    let taps = checked_product(op, "filter", &[channels, filter_height, filter_width])?;
    let tile = Tile::choose(&ctx.gpu.device.limits(), ctx.gpu.multiprocessors(), [filters, columns, 1]);
    let tiles = tile.count(filters, columns);
    let params = Params {
        filters: dim(op, "filters", filters)?,
        columns: dim(op, "output pixels", columns)?,
        pixels: dim(op, "output pixels", pixels)?,
        taps: dim(op, "filter", taps)?,
        tiles_m: dim(op, "tiles", filters.div_ceil(tile.m))?,
        tiles: dim(op, "tiles", tiles)?,
        channels: dim(op, "channels", channels)?,
        height: signed(op, "height", height)?,
        width: signed(op, "width", width)?,
        out_width: dim(op, "width of the output", out_width)?,
        filter_height: signed(op, "height of the filter", filter_height)?,
        filter_width: signed(op, "width of the filter", filter_width)?,
        // A stride that is never taken may be any number.
        stride_y: if out_height > 1 { signed(op, "stride", desc.stride[0])? } else { 1 },
        stride_x: if out_width > 1 { signed(op, "stride", desc.stride[1])? } else { 1 },
        padding_y: signed(op, "padding", desc.padding[0])?,
        padding_x: signed(op, "padding", desc.padding[1])?,
        input_offset: input.offset,
        filter_offset: filter.offset,
        output_offset: output.offset,
    };
    let vectors = taps.is_multiple_of(4) && filter.offset.is_multiple_of(4);
    let grid = linear_grid(op, tiles)?;
    ctx.launch(op, &variant(tile, vectors), &[&input, &filter, &filter], &output, &params, grid)
}

/// A size that the kernel adds and subtracts as an i32.
fn signed(op: &'static str, what: &'static str, value: usize) -> BackendResult<u32> {
    let max = 1 << 29;
    if value > max {
        return Err(backend_api::BackendError::Limit { op, what, requested: value, max });
    }
    dim(op, what, value)
}
