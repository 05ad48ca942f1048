//! Convolution as a matrix product that is never written out.

use backend_api::desc::{ConvGather, ImageLayout};
use backend_api::{Activation, BackendResult, DType, checked_product};

use super::Job;
use super::params::{Params, is_regular};
use crate::context::{Context, dim, linear_grid};
use crate::kernels::libs::{
    CORNER, RESULTS_ADJACENT, RESULTS_APART, SOURCE_ANY, SOURCE_VECTORS, SOURCE_WINDOW,
};
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
        writes: 1,
        params: Params,
    )
};

const CONSTANTS: [&str; 7] = {
    let [m, n, k, thread_m, thread_n] = TILE_CONSTANTS;
    [m, n, k, thread_m, thread_n, "VEC", "ACTIVATION"]
};

/// How the kernel reads the source and writes the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Access {
    read: Read,
    /// Whether results are written four at once.
    adjacent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Any,
    Window,
    Vectors,
}

impl Access {
    const ALL: [Self; 5] = [
        Self { read: Read::Any, adjacent: false },
        Self { read: Read::Any, adjacent: true },
        Self { read: Read::Window, adjacent: false },
        Self { read: Read::Vectors, adjacent: false },
        Self { read: Read::Vectors, adjacent: true },
    ];

    fn libs(self) -> &'static [Lib] {
        match (self.read, self.adjacent) {
            (Read::Any, false) => &[SOURCE_ANY, RESULTS_APART],
            (Read::Any, true) => &[SOURCE_ANY, RESULTS_ADJACENT],
            // Channels that are planes.
            (Read::Window, _) => &[CORNER, SOURCE_WINDOW, RESULTS_APART],
            (Read::Vectors, false) => &[CORNER, SOURCE_VECTORS, RESULTS_APART],
            (Read::Vectors, true) => &[CORNER, SOURCE_VECTORS, RESULTS_ADJACENT],
        }
    }

    fn of(job: &Job) -> Self {
        let gather = &job.gather;
        let regular = is_regular(gather) && gather.taps() > 0;
        let fours = |channels: usize, offset: u32| channels.is_multiple_of(4) && offset.is_multiple_of(4);
        let nhwc = gather.layout == ImageLayout::Nhwc;
        let read = match nhwc {
            true if regular && fours(gather.channels, job.input.offset) => Read::Vectors,
            false if regular => Read::Window,
            _ => Read::Any,
        };
        Self { read, adjacent: nhwc && fours(gather.filters, job.output.offset) }
    }
}

fn variant(tile: Tile, access: Access, dtype: DType, vectors: bool, activation: Activation) -> Variant {
    let [m, n, k, thread_m, thread_n] = tile.constants();
    let constants = [m, n, k, thread_m, thread_n, u32::from(vectors), activation_code(activation)];
    Variant::new(&IMPLICIT_GEMM, [dtype], constants).with_libs(access.libs())
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for (tile, access) in Tile::ALL.into_iter().flat_map(|tile| Access::ALL.map(|access| (tile, access))) {
        for (dtype, vectors) in [DType::F32, DType::F16].into_iter().flat_map(|d| [(d, false), (d, true)]) {
            let of = |&activation| variant(tile, access, dtype, vectors, activation);
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
    let variant = variant(tile, Access::of(job), job.dtype, vectors, job.activation);
    let Job { input, filter, bias, output, .. } = job;
    ctx.launch(op, &variant, &[input, input, filter, filter, bias], output, &params, linear_grid(op, tiles)?)
}
