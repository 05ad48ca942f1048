//! Matrix products: the one path behind `gemm`, `batched_gemm`, `gemm_f16` and `matmul`.
//!
//! [`Plan`] says which kernel makes a product, in which tiles, and whether k is split between workgroups. The
//! kernels are `gemm/tiled` on any device, `gemm/direct` on CPUs, `gemm/cooperative` on tensor cores,
//! `gemm/unstaged` there for up to 256 rows or columns, `gemm/skinny`, `gemm/gemv`, `gemm/gemv_dot` and
//! `gemm/skinny_cooperative` for few of them, and `gemm/outer` for short sums; `gemm/pack` and `gemm/combine`
//! serve them.

mod cooperative;
mod direct;
mod edges;
mod emulated;
mod fragments;
mod gemv;
mod gemv_dot;
mod kernel;
mod kernel_override;
mod large;
mod layout;
mod outer;
mod pack;
mod part;
mod plan;
mod self_test;
mod skinny;
mod skinny_cooperative;
mod slices;
mod split;
mod tiled;
#[cfg(not(target_family = "wasm"))]
mod tune;
mod tuning;
mod unstaged;
mod unstaged_step;

use backend_api::desc::{BiasAxis, MatmulDesc};
use backend_api::{BackendResult, DType};

use crate::kernels::{Lib, Variant, libs, params};
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::recorder::Window;

use super::shared::long_work::{explain_parts, in_parts};
use super::shared::tile::tiles;
use kernel::Kernel;
use part::Part;
use plan::{Plan, Prep, Strategy};

pub(super) use cooperative::time as cooperative_time;
pub(super) use fragments::{multiply as unrolled_multiply, quant_product};
pub(crate) use kernel_override::KernelOverride;
pub(super) use split::add_pieces;
#[cfg(not(target_family = "wasm"))]
pub(crate) use tune::tune_matmul;
pub(crate) use tuning::{Conflict, Tuning};

params! {
    /// Sizes of a batch of products, and its tiles.
    pub(super) struct SizeParams {
        m: u32,
        n: u32,
        k: u32,
        // k of the batch's last matrix, which may be less: the batch may be pieces of one long sum.
        k_last: u32,
        batch: u32,
        tiles_m: u32,
        tiles_n: u32,
        tiles: u32,
    }
}

params! {
    /// C, and what lib/matmul makes of a sum.
    pub(super) struct ResultParams {
        c_offset: u32,
        c_ld: u32,
        c_batch: u32,
        bias_offset: u32,
        // 0: none, 1: one for each column, 2: one for each row.
        bias: u32,
        // Whether C is read at all.
        accumulate: u32,
        alpha: f32,
        beta: f32,
    }
}

params! {
    struct Params {
        sizes: SizeParams,
        a_offset: u32,
        a_ld: u32,
        a_batch: u32,
        b_offset: u32,
        b_ld: u32,
        b_batch: u32,
        result: ResultParams,
    }
}

impl SizeParams {
    /// Of products of `m` by `n`, whose sums are of `k` products, in the last matrix of `k_last`.
    pub(super) fn new(
        op: &'static str,
        [m, n]: [usize; 2],
        [k, k_last]: [usize; 2],
        batch: usize,
        tile: [usize; 2],
    ) -> BackendResult<Self> {
        let [tiles_m, tiles_n, tiles] = tiles(op, [m, n], tile, [batch])?;
        let [m, n] = [dim(op, "m", m)?, dim(op, "n", n)?];
        let [k, k_last, batch] = [dim(op, "k", k)?, dim(op, "k", k_last)?, dim(op, "batch", batch)?];
        Ok(Self { m, n, k, k_last, batch, tiles_m, tiles_n, tiles })
    }
}

pub(super) fn variants() -> Vec<Variant> {
    [
        direct::variants(),
        tiled::variants(),
        cooperative::variants(),
        skinny::variants(),
        gemv::variants(),
        gemv_dot::variants(),
        skinny_cooperative::variants(),
        unstaged::variants(),
        outer::variants(),
        pack::variants(),
        split::variants(),
        emulated::variants(),
    ]
    .concat()
}

/// What the kernels see of a product's operands.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    pub(super) a: Window,
    pub(super) b: Window,
    pub(super) bias: Window,
    pub(super) c: Window,
}

/// Whether this isn't a page.
const IS_NATIVE: bool = cfg!(not(target_family = "wasm"));

/// A product with the sum over k of its last matrix, which is shorter where the batch is a sum in pieces.
#[derive(Clone, Copy, Debug)]
struct Product {
    desc: MatmulDesc,
    k_last: usize,
}

impl Product {
    fn whole(desc: &MatmulDesc) -> Self {
        Self { desc: *desc, k_last: desc.k }
    }
}

/// `C = activation(alpha · op(A) · op(B) + beta · C + bias)`.
pub(crate) fn matmul(ctx: &OpContext, op: &'static str, desc: &MatmulDesc) -> BackendResult<()> {
    let Some(windows) = windows(ctx, op, desc)? else {
        return Ok(());
    };
    multiply(ctx, op, desc, &windows)
}

/// A product that another operation needs, of operands that are checked; the descriptor's handles aren't
/// looked at.
pub(super) fn multiply(
    ctx: &OpContext,
    op: &'static str,
    desc: &MatmulDesc,
    windows: &Windows,
) -> BackendResult<()> {
    in_parts(ctx, op, Part::new(*desc, windows.clone()), |part| {
        if part.needs_sums() {
            return slices::run_by_sums(ctx, op, part);
        }
        let (desc, windows) = (&part.desc, &*part.bound());
        let plan = Plan::choose(ctx, desc, windows);
        tracing::trace!(op, %plan, "matmul");
        run(ctx, op, desc, windows, &plan)
    })
}

/// The plan for a product, in words.
pub(crate) fn explain_matmul(ctx: &OpContext, op: &'static str, desc: &MatmulDesc) -> BackendResult<String> {
    match windows(ctx, op, desc)? {
        Some(windows) => explain(ctx, op, desc, windows),
        None => Ok("nothing".to_owned()),
    }
}

/// The plan for a product whose operands are known, in words.
pub(super) fn explain(
    ctx: &OpContext,
    op: &'static str,
    desc: &MatmulDesc,
    windows: Windows,
) -> BackendResult<String> {
    explain_parts(ctx, op, Part::new(*desc, windows), |part| {
        Plan::choose(ctx, &part.desc, &part.bound()).to_string()
    })
}

/// Checks the product and finds its operands; `None` if there is nothing to compute.
fn windows(ctx: &OpContext, op: &'static str, desc: &MatmulDesc) -> BackendResult<Option<Windows>> {
    let operands = desc.operands(op)?;
    let [a, b, c, bias] = ctx.resolve(op, &operands)?;
    let Some(c) = c else { return Ok(None) };
    for matrix in [&desc.a, &desc.b, &desc.c] {
        ctx.require_dtype(op, matrix.dtype)?;
    }
    let c = ctx.output(&c, desc.c.dtype);
    Ok(Some(Windows {
        a: ctx.optional_input(op, a.as_ref(), desc.a.dtype, &c)?,
        b: ctx.optional_input(op, b.as_ref(), desc.b.dtype, &c)?,
        bias: ctx.optional_input(op, bias.as_ref(), desc.c.dtype, &c)?,
        c,
    }))
}

/// Records what the plan needs: copies of badly aligned operands, the product itself or its parts, and the
/// sum of its pieces. Sums that are too long for the device's loops are made in slices instead, each with a
/// plan of its own.
fn run(
    ctx: &OpContext,
    op: &'static str,
    desc: &MatmulDesc,
    windows: &Windows,
    plan: &Plan,
) -> BackendResult<()> {
    if let Some(length) = slices::length(ctx, desc, plan) {
        return slices::run(ctx, op, desc, windows, plan, length);
    }
    let (mut desc, mut windows) = (*desc, windows.clone());
    if plan.prep[1] == Prep::Transpose {
        pack::transpose_b(ctx, op, &mut desc, &mut windows)?;
    }
    pack::align(ctx, op, &mut desc, &mut windows, plan.prep)?;
    match plan.strategy {
        Strategy::SplitK(_) => split::run(ctx, op, &desc, &windows, plan),
        // Both are for tensor cores, which no browser offers, and a page needn't load them.
        Strategy::PeelEdges if IS_NATIVE => edges::run(ctx, op, &desc, &windows, plan),
        Strategy::Emulated(_) if IS_NATIVE => emulated::run(ctx, op, &desc, &windows, plan),
        Strategy::Whole | Strategy::PeelEdges | Strategy::Emulated(_) => {
            launch(ctx, op, &Product::whole(&desc), &windows, plan)
        }
    }
}

fn launch(
    ctx: &OpContext,
    op: &'static str,
    product: &Product,
    windows: &Windows,
    plan: &Plan,
) -> BackendResult<()> {
    let mut params = params(op, product, windows, plan.tile())?;
    let kernel = plan.implementation();
    if kernel.is_transposed() {
        params = params.transposed();
    }
    let grid = linear_grid(op, (params.sizes.tiles as usize).div_ceil(kernel.tiles_of_a_workgroup()))?;
    let [a, b] = [&windows.a, &windows.b].map(|window| match plan.kernel {
        Kernel::Cooperative(_) if !plan.signature.vectors => window.clone().by_vectors(),
        _ => window.clone(),
    });
    let windows = &Windows { a, b, ..windows.clone() };
    ctx.launch(op, &kernel.variant(&plan.signature), &kernel.inputs(windows), &windows.c, &params, grid)
}

fn params(op: &'static str, product: &Product, windows: &Windows, tile: [usize; 2]) -> BackendResult<Params> {
    let Product { desc, k_last } = product;
    let sizes = SizeParams::new(op, [desc.m, desc.n], [desc.k, *k_last], desc.batch, tile)?;
    // Without products, A and B aren't looked at.
    let read = |count: usize| if desc.k == 0 { 0 } else { count };
    Ok(Params {
        sizes,
        a_offset: windows.a.offset,
        a_ld: stride(op, "lda", desc.a.ld, read(desc.m.max(desc.k)))?,
        a_batch: stride(op, "stride_a", desc.a.batch_stride, read(desc.batch))?,
        b_offset: windows.b.offset,
        b_ld: stride(op, "ldb", desc.b.ld, read(desc.n.max(desc.k)))?,
        b_batch: stride(op, "stride_b", desc.b.batch_stride, read(desc.batch))?,
        result: ResultParams {
            c_offset: windows.c.offset,
            c_ld: stride(op, "ldc", desc.c.ld, desc.m)?,
            c_batch: stride(op, "stride_c", desc.c.batch_stride, desc.batch)?,
            bias_offset: windows.bias.offset,
            bias: match desc.bias.map(|bias| bias.axis) {
                None => 0,
                Some(BiasAxis::Column) => 1,
                Some(BiasAxis::Row) => 2,
            },
            accumulate: u32::from(desc.beta != 0.0),
            alpha: desc.alpha as f32,
            beta: desc.beta as f32,
        },
    })
}

/// A stride that is used; one that only a single row or matrix would take doesn't matter, however large.
fn stride(op: &'static str, what: &'static str, value: usize, count: usize) -> BackendResult<u32> {
    if count <= 1 { Ok(0) } else { dim(op, what, value) }
}

/// The activations for results of this type.
fn activation_libs(dtype: DType) -> &'static [Lib] {
    match dtype {
        DType::F16 => &[libs::ACTIVATE_HALF],
        _ => &[libs::ACTIVATE],
    }
}
