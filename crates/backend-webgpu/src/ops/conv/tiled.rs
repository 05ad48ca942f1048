//! Convolution as a matrix product that is never written out.

use backend_api::desc::{ConvGather, ImageLayout};
use backend_api::{Activation, BackendResult, DType, checked_product};

use super::Job;
use super::params::{Params, is_regular};
use crate::context::{Context, dim, linear_grid};
use crate::kernels::libs::{CORNER, SOURCE_ANY, SOURCE_VECTORS, SOURCE_WINDOW};
use crate::kernels::{KernelSource, Lib, Variant, kernel};
use crate::ops::matmul::activation_code;
use crate::ops::tile::{TILE_CONSTANTS, Tile, tile_product};

static IMPLICIT_GEMM: KernelSource = KernelSource {
    unrolled: Some(tile_product),
    ..kernel!(
        "conv/implicit_gemm",
        libs: [GRID, QUOTIENT, SPECIAL, UNARY, ACTIVATE, CONV, TILE_PRODUCT],
        types: ["T"],
        constants: CONSTANTS,
        reads: 5,
        writes: 2,
        params: Params,
    )
};

const CONSTANTS: [&str; 7] = {
    let [m, n, k, thread_m, thread_n] = TILE_CONSTANTS;
    [m, n, k, thread_m, thread_n, "VEC", "ACTIVATION"]
};

/// How the kernel reads the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Any,
    Window,
    Vectors,
}

impl Source {
    const ALL: [Self; 3] = [Self::Any, Self::Window, Self::Vectors];

    const fn libs(self) -> &'static [Lib] {
        match self {
            Self::Any => &[SOURCE_ANY],
            Self::Window => &[CORNER, SOURCE_WINDOW],
            Self::Vectors => &[CORNER, SOURCE_VECTORS],
        }
    }

    fn of(job: &Job) -> Self {
        let gather = &job.gather;
        let regular = is_regular(gather) && gather.taps() > 0;
        let fours = gather.channels.is_multiple_of(4) && job.input.offset.is_multiple_of(4);
        match gather.layout {
            ImageLayout::Nhwc if regular && fours => Self::Vectors,
            ImageLayout::Nchw if regular => Self::Window,
            _ => Self::Any,
        }
    }
}

fn variant(tile: Tile, source: Source, dtype: DType, vectors: bool, activation: Activation) -> Variant {
    let [m, n, k, thread_m, thread_n] = tile.constants();
    let constants = [m, n, k, thread_m, thread_n, u32::from(vectors), activation_code(activation)];
    Variant::new(&IMPLICIT_GEMM, [dtype], constants).with_libs(source.libs())
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for (tile, source) in Tile::ALL.into_iter().flat_map(|tile| Source::ALL.map(|source| (tile, source))) {
        for (dtype, vectors) in [DType::F32, DType::F16].into_iter().flat_map(|d| [(d, false), (d, true)]) {
            let of = |&activation| variant(tile, source, dtype, vectors, activation);
            variants.extend(Activation::ALL.iter().map(of));
        }
    }
    variants
}

/// The tile that is estimated to be the fastest for results of so many rows and columns, repeated.
pub(super) fn choose(ctx: &Context, sizes: [usize; 3]) -> Tile {
    Tile::choose(&ctx.gpu.device.limits(), ctx.gpu.multiprocessors(), sizes)
}

pub(super) fn launch(ctx: &Context, op: &'static str, job: &Job, tile: Tile) -> BackendResult<()> {
    let &ConvGather { groups, filters, .. } = &job.gather;
    let mut params = Params::new(op, job)?;
    let rows = params.rows as usize;
    let (tiles_m, tiles_n) = (rows.div_ceil(tile.m), filters.div_ceil(tile.n));
    let tiles = checked_product(op, "tiles", &[tiles_m, tiles_n, groups])?;
    params.tiles_m = dim(op, "tiles", tiles_m)?;
    params.tiles_n = dim(op, "tiles", tiles_n)?;
    params.tiles = dim(op, "tiles", tiles)?;
    let vectors = job.gather.taps().is_multiple_of(4) && job.filter.offset.is_multiple_of(4);
    let variant = variant(tile, Source::of(job), job.dtype, vectors, job.activation);
    let Job { input, filter, bias, output, .. } = job;
    let inputs = [input, input, filter, filter, bias, output];
    ctx.launch(op, &variant, &inputs, output, &params, linear_grid(op, tiles)?)
}
