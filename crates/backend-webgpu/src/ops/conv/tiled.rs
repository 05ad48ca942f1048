//! Convolution as a matrix product that is never written out.

use backend_api::desc::ImageLayout;
use backend_api::support::{ConvGather, GatherAxis};
use backend_api::{Activation, BackendResult, DType};

use super::params::{Params, inverse, is_regular};
use super::{Job, repack_filter, split};
use crate::kernels::libs::{
    RESULTS_ADJACENT, RESULTS_APART, RESULTS_PLANES, SOURCE_ANY, SOURCE_LINES, SOURCE_VECTORS, SOURCE_WINDOW,
};
use crate::kernels::{Constant as _, KernelSource, Lib, Target, Values, Variant, constants, kernel};
use crate::ops::op_context::{OpContext, linear_grid};
use crate::ops::shared::tile::{Tile, TileConstants, Vec4s, tiles, written};

constants! {
    struct Constants {
        tile: TileConstants,
        // Whether filters are read by vectors.
        vec: bool,
        activation: Activation,
        planes: bool,
    }
}

pub(super) static IMPLICIT_GEMM: KernelSource = KernelSource {
    unrolled: Some(product),
    ..kernel!(
        "conv/implicit_gemm", libs: [WORKGROUP_TILES, QUOTIENT, ACTIVATE, CONV, TILE_PRODUCT],
        types: ["T", "TC"], constants: Constants, params: Params,
        reads: ["input: T", "input4: vec4<T>", "filter_values: T", "filter_vectors: vec4<T>", "bias: T"],
        writes: ["output"],
    )
};

/// The loop over taps, given the kernel's constants: results of planes are written as four pixels.
fn product(values: &Values, target: Target) -> String {
    let Constants { planes, .. } = Constants::of(values);
    written(values, target, if planes { Vec4s::Down } else { Vec4s::Across })
}

/// How the kernel reads the source and writes the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    read: Read,
    write: Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Any,
    Window,
    Lines,
    Vectors,
}

/// One by one, or four at once: of channels that are adjacent, or of pixels where channels are planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Apart,
    Adjacent,
    Planes,
}

impl Access {
    const ALL: [Self; 8] = [
        Self { read: Read::Any, write: Write::Apart },
        Self { read: Read::Any, write: Write::Adjacent },
        Self { read: Read::Window, write: Write::Apart },
        Self { read: Read::Window, write: Write::Adjacent },
        Self { read: Read::Window, write: Write::Planes },
        Self::LINES,
        Self { read: Read::Vectors, write: Write::Apart },
        Self { read: Read::Vectors, write: Write::Adjacent },
    ];

    const LINES: Self = Self { read: Read::Lines, write: Write::Planes };

    fn libs(self) -> &'static [Lib] {
        match (self.read, self.write) {
            (Read::Any, Write::Adjacent) => &[SOURCE_ANY, RESULTS_ADJACENT],
            (Read::Any, _) => &[SOURCE_ANY, RESULTS_APART],
            (Read::Window, Write::Planes) => &[SOURCE_WINDOW, RESULTS_PLANES],
            (Read::Window, Write::Adjacent) => &[SOURCE_WINDOW, RESULTS_ADJACENT],
            (Read::Window, _) => &[SOURCE_WINDOW, RESULTS_APART],
            (Read::Lines, _) => &[SOURCE_LINES, RESULTS_PLANES],
            (Read::Vectors, Write::Adjacent) => &[SOURCE_VECTORS, RESULTS_ADJACENT],
            (Read::Vectors, _) => &[SOURCE_VECTORS, RESULTS_APART],
        }
    }

    /// Of a convolution in tiles of this size.
    fn of(job: &Job, tile: Tile) -> Self {
        let gather = &job.gather;
        let regular = is_regular(gather) && gather.taps() > 0;
        let vec4s = |size: usize, offset: u32| size.is_multiple_of(4) && offset.is_multiple_of(4);
        if gather.layout == ImageLayout::Nhwc {
            let vectors = vec4s(gather.channels, job.input.offset);
            let adjacent = vec4s(gather.filters, job.output.offset);
            return Self {
                read: match regular {
                    true if vectors => Read::Vectors,
                    true => Read::Window,
                    false => Read::Any,
                },
                write: if adjacent { Write::Adjacent } else { Write::Apart },
            };
        }
        if !regular {
            return Self { read: Read::Any, write: Write::Apart };
        }
        let planes = vec4s(gather.pixels(), job.output.offset);
        if planes && has_lines(gather) && job.input.offset.is_multiple_of(4) && tile == TILES[0] {
            return Self::LINES;
        }
        Self { read: Read::Window, write: if planes { Write::Planes } else { Write::Apart } }
    }
}

/// Whether source and result have rows of the same length, a multiple of four, and a row of the filter has a
/// pixel and those beside it, from left to right.
fn has_lines(gather: &ConvGather) -> bool {
    let GatherAxis { stride, dilation, before, transposed } = gather.axes[1];
    let [_, columns] = gather.result;
    let beside = gather.filter[1] == 3 && [stride, dilation, before] == [1, 1, 1] && !transposed;
    beside && gather.source[1] == columns && columns.is_multiple_of(4)
}

fn variant(tile: Tile, access: Access, types: [DType; 2], vectors: bool, activation: Activation) -> Variant {
    let planes = access.write == Write::Planes;
    let constants = Constants { tile: tile.constants(), vec: vectors, activation, planes };
    Variant::new(&IMPLICIT_GEMM, types, constants)
        .with_libs(access.libs())
        .with_workgroup(tile.threads(), tile.workgroup_bytes())
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    let all = TILES.into_iter().flat_map(|tile| Access::ALL.map(|access| (tile, access)));
    let all = all.filter(|&(_, access)| access != Access::LINES);
    for (tile, access) in all.chain([(Tile::THREES, Access::LINES)]) {
        for (dtype, vectors) in [DType::F32, DType::F16].into_iter().flat_map(|d| [(d, false), (d, true)]) {
            let of = |&activation| variant(tile, access, [dtype; 2], vectors, activation);
            variants.extend(Activation::ALL.iter().map(of));
            if dtype == DType::F16 {
                // Sums in slices.
                variants.push(variant(tile, access, [dtype, DType::F32], vectors, Activation::Identity));
            }
        }
    }
    variants
}

/// Every tile, largest first. A larger one is no faster for what is read number by number, and takes twice as
/// long to compile.
pub(super) const TILES: [Tile; 3] = [Tile::ALL[1], Tile::ALL[2], Tile::ALL[3]];

/// The tile that is estimated to be the fastest, and the slices of each sum.
pub(super) fn fastest(ctx: &OpContext, gather: &ConvGather) -> Option<((Tile, usize), usize)> {
    let rows = gather.batch.saturating_mul(gather.pixels());
    let (limits, compute_units) = (&ctx.gpu().limits, ctx.profile().compute_units);
    let fitting = TILES.into_iter().filter(|tile| tile.fits(limits));
    let time = |tile: Tile, taps, groups| tile.time([rows, gather.filters, taps, groups], compute_units);
    split::cheapest(ctx, gather, fitting, time)
}

/// Makes a convolution in tiles of this size, its sums in at most so many slices.
pub(super) fn launch(
    ctx: &OpContext,
    op: &'static str,
    job: &Job,
    (tile, slices): (Tile, usize),
) -> BackendResult<()> {
    let &ConvGather { groups, filters, .. } = &job.gather;
    let access = Access::of(job, tile);
    // Read through a window, the taps of a channel follow each other.
    let interleaved = job.gather.layout == ImageLayout::Nhwc && access.read != Read::Window;
    let job = &repack_filter::as_multiplied(ctx, op, job, interleaved)?;
    let mut params = Params::new(op, job)?;
    let [filter_height, filter_width] = job.gather.filter;
    let tile = match access.read {
        Read::Lines => {
            params.quotients.per_outer = inverse(filter_height);
            Tile::THREES
        }
        Read::Window => {
            params.quotients.per_outer = inverse(filter_height * filter_width);
            tile
        }
        _ => tile,
    };
    let target = split::Target::new(ctx, op, job, slices, tile.k)?;
    let mut params = target.params(op, params)?;
    let sizes = [params.output.rows as usize, filters];
    [params.tiles_m, params.tiles_n, params.tiles] =
        tiles(op, sizes, [tile.m, tile.n], [groups, target.count()])?;
    let vectors = job.gather.taps().is_multiple_of(4) && job.filter.offset.is_multiple_of(4);
    let variant = variant(tile, access, [job.dtype, target.dtype()], vectors, target.activation());
    let Job { input, filter, bias, .. } = job;
    let reads = [input, input, filter, filter, bias];
    ctx.launch(op, &variant, &reads, target.window(), &params, linear_grid(op, params.tiles as usize)?)?;
    target.finish(ctx, op)
}
