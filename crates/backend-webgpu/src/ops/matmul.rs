//! Matrix products: the one path behind `gemm`, `batched_gemm`, `gemm_f16` and `matmul`.

use backend_api::desc::{BiasAxis, MatmulDesc, Matrix};
use backend_api::{Activation, BackendResult, DType};

use super::tile::{TILE_CONSTANTS, Tile};
use crate::context::{Context, dim, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel, params};

static TILED: KernelSource = kernel!(
    "gemm/tiled",
    libs: [GRID, SPECIAL, UNARY, ACTIVATE, TILE_PRODUCT],
    types: ["TA", "TB", "TC"],
    constants: with_tile(["VEC", "TRANS_A", "TRANS_B", "ACTIVATION"]),
    reads: 5,
    writes: 1,
    params: Params,
);

params! {
    struct Params {
        m: u32,
        n: u32,
        k: u32,
        tiles_m: u32,
        tiles_n: u32,
        tiles: u32,
        a_offset: u32,
        a_ld: u32,
        a_batch: u32,
        b_offset: u32,
        b_ld: u32,
        b_batch: u32,
        c_offset: u32,
        c_ld: u32,
        c_batch: u32,
        bias_offset: u32,
        bias: u32,
        accumulate: u32,
        alpha: f32,
        beta: f32,
    }
}

/// The names of a tile's constants, followed by others.
const fn with_tile(rest: [&'static str; 4]) -> [&'static str; 10] {
    let [m, n, k, thread_m, thread_n, stages] = TILE_CONSTANTS;
    let [vectors, trans_a, trans_b, activation] = rest;
    [m, n, k, thread_m, thread_n, stages, vectors, trans_a, trans_b, activation]
}

/// What decides about the kernel's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    tile: Tile,
    dtypes: [DType; 3],
    vectors: bool,
    trans_a: bool,
    trans_b: bool,
    activation: Activation,
}

impl Plan {
    fn variant(&self) -> Variant {
        let [m, n, k, thread_m, thread_n, stages] = self.tile.constants();
        let [vectors, trans_a, trans_b] = [self.vectors, self.trans_a, self.trans_b].map(u32::from);
        let activation = activation_code(self.activation);
        let constants = [m, n, k, thread_m, thread_n, stages, vectors, trans_a, trans_b, activation];
        Variant::new(&TILED, self.dtypes, constants)
    }
}

pub(super) fn variants() -> Vec<Variant> {
    use DType::{F16, F32};
    let mut variants = Vec::new();
    for dtypes in [[F32, F32, F32], [F16, F16, F16], [F16, F16, F32], [F32, F16, F32]] {
        for tile in Tile::ALL {
            for flags in 0..8 {
                let [vectors, trans_a, trans_b] = [1, 2, 4].map(|bit| flags & bit != 0);
                for &activation in Activation::ALL {
                    let plan = Plan { tile, dtypes, vectors, trans_a, trans_b, activation };
                    variants.push(plan.variant());
                }
            }
        }
    }
    variants
}

/// `C = activation(alpha · op(A) · op(B) + beta · C + bias)`.
pub(crate) fn matmul(ctx: &Context, op: &'static str, desc: &MatmulDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    let [a, b, c, bias] = ctx.resolve(op, &operands)?;
    let Some(c) = c else { return Ok(()) };
    let dtypes = [desc.a.dtype, desc.b.dtype, desc.c.dtype];
    for dtype in dtypes {
        ctx.require_dtype(op, dtype)?;
    }
    let output = ctx.output(op, &c, desc.c.dtype)?;
    let a = ctx.optional_input(op, a.as_ref(), desc.a.dtype, &output)?;
    let b = ctx.optional_input(op, b.as_ref(), desc.b.dtype, &output)?;
    let bias = ctx.optional_input(op, bias.as_ref(), desc.c.dtype, &output)?;

    let (trans_a, trans_b) = (desc.trans_a.is_transposed(), desc.trans_b.is_transposed());
    let tile = Tile::choose(&ctx.gpu.device.limits(), desc.m, desc.n, desc.batch);
    let tiles_m = desc.m.div_ceil(tile.m);
    let tiles_n = desc.n.div_ceil(tile.n);
    let tiles = backend_api::checked_product(op, "tiles", &[tiles_m, tiles_n, desc.batch])?;
    let plan = Plan {
        tile,
        dtypes,
        vectors: reads_as_vectors(&desc.a, a.offset, if trans_a { desc.m } else { desc.k })
            && reads_as_vectors(&desc.b, b.offset, if trans_b { desc.k } else { desc.n }),
        trans_a,
        trans_b,
        activation: desc.activation,
    };
    let params = Params {
        m: dim(op, "m", desc.m)?,
        n: dim(op, "n", desc.n)?,
        k: dim(op, "k", desc.k)?,
        tiles_m: dim(op, "tiles", tiles_m)?,
        tiles_n: dim(op, "tiles", tiles_n)?,
        tiles: dim(op, "tiles", tiles)?,
        a_offset: a.offset,
        a_ld: stride(op, "lda", desc.a.ld, desc.m.max(desc.k))?,
        a_batch: stride(op, "stride_a", desc.a.batch_stride, desc.batch)?,
        b_offset: b.offset,
        b_ld: stride(op, "ldb", desc.b.ld, desc.n.max(desc.k))?,
        b_batch: stride(op, "stride_b", desc.b.batch_stride, desc.batch)?,
        c_offset: output.offset,
        c_ld: stride(op, "ldc", desc.c.ld, desc.m)?,
        c_batch: stride(op, "stride_c", desc.c.batch_stride, desc.batch)?,
        bias_offset: bias.offset,
        bias: match desc.bias.map(|bias| bias.axis) {
            None => 0,
            Some(BiasAxis::Column) => 1,
            Some(BiasAxis::Row) => 2,
        },
        accumulate: u32::from(desc.beta != 0.0),
        alpha: desc.alpha as f32,
        beta: desc.beta as f32,
    };
    let grid = linear_grid(op, tiles)?;
    tracing::trace!(op, ?plan, tiles, "matmul");
    ctx.launch(op, &plan.variant(), &[&a, &a, &b, &b, &bias], &output, &params, grid)
}

/// Whether every row of a factor starts at a multiple of four elements and has a multiple of four of them.
fn reads_as_vectors(matrix: &Matrix, offset: u32, along_memory: usize) -> bool {
    offset.is_multiple_of(4)
        && [matrix.ld, matrix.batch_stride, along_memory].iter().all(|size| size.is_multiple_of(4))
}

/// A stride that is used; one that only a single row or matrix would take doesn't matter, however large.
fn stride(op: &'static str, what: &'static str, value: usize, count: usize) -> BackendResult<u32> {
    if count <= 1 { Ok(0) } else { dim(op, what, value) }
}

/// The number by which lib/activate knows it.
fn activation_code(activation: Activation) -> u32 {
    Activation::ALL.iter().position(|&known| known == activation).unwrap_or_default() as u32
}
