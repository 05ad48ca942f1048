//! The gradient of a convolution's filters.

use backend_api::desc::{ConvBackwardFilterDesc, ImageLayout};
use backend_api::support::{ConvGather, checked_product};
use backend_api::{Activation, BackendResult, DType};

use super::params::{Axis, OutputParams, QuotientParams, TapParams};
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::ops::matmul;
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::ops::shared::iterations;
use crate::ops::shared::long_work::{Run, in_parts};
use crate::ops::shared::tile::{Tile, TileConstants, tile_product};

constants! { struct Constants { tile: TileConstants, interleaved: bool } }

static FILTER_GRADIENT: KernelSource = KernelSource {
    unrolled: Some(tile_product),
    ..kernel!(
        "conv/filter_gradient", libs: [GRID, QUOTIENT, SOURCE_VEC4S, TILE_PRODUCT],
        types: ["T", "TR"], constants: Constants, params: Params,
        reads: ["input: T", "gradient: T"], writes: ["output: TR"],
    )
};

params! {
    struct Params {
        output: OutputParams,
        // Elements of a filter.
        taps: u32,
        tap_places: TapParams,
        // Pixels in a piece.
        length: u32,
        input_offset: u32,
        gradient_offset: u32,
        output_offset: u32,
        tiles_m: u32,
        tiles_n: u32,
        // The last but one of this launch, and the first.
        tiles: u32,
        first_tile: u32,
        quotients: QuotientParams,
    }
}

/// Every tile, largest first.
const TILES: [Tile; 4] = [Tile::WIDE, Tile::ALL[1], Tile::ALL[2], Tile::ALL[3]];

/// Tiles that occupy a device.
const ENOUGH: usize = 256;

/// The most iterations of the kernel for each pixel of a sum.
const ITERATIONS: usize = 4;

/// The fewest pixels in a piece of a sum, and a multiple of every kernel's step.
const PIECE: usize = 512;

fn variant(tile: Tile, [dtype, result]: [DType; 2], interleaved: bool) -> Variant {
    let constants = Constants { tile: tile.constants(), interleaved };
    Variant::new(&FILTER_GRADIENT, [dtype, result], constants)
        .with_workgroup(tile.threads(), tile.workgroup_bytes())
}

pub(super) fn variants() -> Vec<Variant> {
    use DType::{F16, F32};
    let mut variants = Vec::new();
    for tile in TILES {
        for types in [[F32, F32], [F16, F16], [F16, F32]] {
            variants.extend([false, true].map(|interleaved| variant(tile, types, interleaved)));
        }
    }
    variants
}

/// `grad_filter[k, c, r, s] = Σ grad_output[n, k, p, q] · input[n, c, …]`.
pub(crate) fn conv2d_backward_filter(
    ctx: &OpContext,
    op: &'static str,
    desc: &ConvBackwardFilterDesc,
) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let gather = ConvGather::forward(op, &desc.shape)?;
    let [input, grad_output, grad_filter] = ctx.resolve(op, &operands)?;
    let (dtype, Some(grad_filter)) = (desc.dtype, grad_filter) else { return Ok(()) };
    ctx.require_dtype(op, dtype)?;
    let output = ctx.output(&grad_filter, dtype);
    let input = ctx.optional_input(op, input.as_ref(), dtype, &output)?;
    let gradient = ctx.optional_input(op, grad_output.as_ref(), dtype, &output)?;

    let ConvGather { batch, groups, filters, .. } = gather;
    let taps = gather.taps();
    let rows = checked_product(op, "pixels", &[batch, gather.pixels()])?;
    // As if all were divided that can be.
    let most = (rows / PIECE).max(1).saturating_mul(groups);
    let sizes = [taps, filters, most];
    let tile = Tile::choose_from(&TILES, &ctx.gpu().limits, ctx.profile().compute_units, sizes);
    let [tiles_m, tiles_n] = [taps.div_ceil(tile.m), filters.div_ceil(tile.n)];
    let per_piece = checked_product(op, "tiles", &[tiles_m, tiles_n, groups])?;
    let length = piece(rows, per_piece, iterations::exceeded(ctx, rows.saturating_mul(ITERATIONS)));
    let pieces = rows.div_ceil(length).max(1);
    let tiles = checked_product(op, "tiles", &[per_piece, pieces])?;

    // Where a sum is made in pieces, these are added afterwards.
    let elements = checked_product(op, "scratch", &[groups, filters, taps, pieces])?;
    let parts = match pieces {
        1 => None,
        _ => {
            let bytes = checked_product(op, "scratch", &[elements, DType::F32.size()])?;
            Some(ctx.output(&ctx.scratch(op, bytes)?, DType::F32))
        }
    };
    let target = parts.as_ref().unwrap_or(&output);
    let axes = [Axis::new(op, &gather, 0)?, Axis::new(op, &gather, 1)?];
    let interleaved = gather.layout == ImageLayout::Nhwc;
    let params = Params {
        output: OutputParams::new(op, &gather, &axes)?,
        taps: dim(op, "filter", taps)?,
        tap_places: TapParams::new(&axes),
        length: dim(op, "pixels", length)?,
        input_offset: input.offset,
        gradient_offset: gradient.offset,
        output_offset: target.offset,
        tiles_m: dim(op, "tiles", tiles_m)?,
        tiles_n: dim(op, "tiles", tiles_n)?,
        tiles: dim(op, "tiles", tiles)?,
        first_tile: 0,
        quotients: QuotientParams::new(&gather),
    };
    let result = if parts.is_some() { DType::F32 } else { dtype };
    let variant = variant(tile, [dtype, result], interleaved);
    let run = Run::of_flops(tiles, gather.flops() / tiles.max(1) as f64);
    in_parts(ctx, op, run, |run| {
        let [first_tile, tiles] = [dim(op, "tiles", run.first)?, dim(op, "tiles", run.end)?];
        let (params, grid) = (Params { first_tile, tiles, ..params }, linear_grid(op, run.count())?);
        ctx.launch(op, &variant, &[&input, &gradient], target, &params, grid)
    })?;
    match &parts {
        Some(parts) => {
            let size = [groups * filters, taps];
            matmul::add_pieces(ctx, op, parts, pieces, size, Activation::Identity, (&output, dtype))
        }
        None => Ok(()),
    }
}

/// Pixels in a piece of a sum over so many `rows` of pixels, with so many tiles in each: enough pieces to
/// occupy a device, none of which takes more iterations than `most`.
fn piece(rows: usize, tiles: usize, most: Option<usize>) -> usize {
    let longest = most.map_or(usize::MAX, |most| (most / ITERATIONS).saturating_sub(PIECE).max(PIECE));
    let pieces = (ENOUGH / tiles.max(1)).min(rows / PIECE).max(rows.div_ceil(longest)).max(1);
    rows.div_ceil(pieces).next_multiple_of(PIECE).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_occupy_a_device_and_are_as_short_as_its_loops() {
        assert_eq!(piece(100_000, 1000, None), 100_352);
        assert_eq!(piece(100_000, 16, None), 6656);
        assert_eq!(piece(1000, 1, None), 1024, "too few for two");
        assert_eq!(
            piece(1 << 20, 1000, Some(61_000)),
            14_848,
            "72, of which each is nearly as long as it may be"
        );
        for rows in [66_000, 100_000, 1 << 20, (1 << 29) - 3] {
            for tiles in [1, 129, 1000] {
                assert!(
                    piece(rows, tiles, Some(61_000)) * ITERATIONS <= 61_000,
                    "{rows} rows, {tiles} tiles"
                );
            }
        }
    }
}
