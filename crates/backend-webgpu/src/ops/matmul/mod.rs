//! Matrix products: the one path behind `gemm`, `batched_gemm`, `gemm_f16` and `matmul`.
//!
//! [`Plan`] says which kernel makes a product, in which tiles, and whether k is split between workgroups: of the
//! candidates of all kernels, the one that costs the least. The kernels are `gemm/tiled` on any device,
//! `gemm/direct` on CPUs, `gemm/cooperative` on tensor cores, `gemm/unstaged` there for up to 256 rows or columns,
//! `gemm/skinny`, `gemm/gemv`, `gemm/gemv_dot` and `gemm/skinny_cooperative` for few of them, and `gemm/outer` for
//! short sums; `gemm/pack` and `gemm/combine` serve them.

mod choose;
mod cooperative;
mod cost;
mod direct;
mod edges;
mod emulated;
mod fragments;
mod gemv;
mod gemv_dot;
mod kernel;
mod kernel_override;
mod large;
mod launch;
mod layout;
mod outer;
mod pack;
mod params;
mod part;
mod plan;
mod plan_cache;
mod self_test;
mod shapes;
mod skinny;
mod skinny_cooperative;
mod slices;
mod split;
mod strategy;
mod tiled;
#[cfg(not(target_family = "wasm"))]
mod tune;
mod tuning;
mod unstaged;
mod unstaged_step;

use backend_api::BackendResult;
use backend_api::desc::MatmulDesc;

use crate::kernels::Variant;
use crate::ops::op_context::OpContext;

use super::router::RouterProduct;
use super::shared::IS_NATIVE;
use super::shared::long_work::{explain_parts, in_parts};
use kernel::Kernel;
use launch::launch;
use pack::Prep;
use params::{Call, Params, Product, activation_libs, params, stride};
use part::Part;
use plan::Plan;
use strategy::Strategy;

pub(super) use cooperative::time as cooperative_time;
pub(super) use fragments::{multiply as unrolled_multiply, quant_product};
pub(crate) use kernel_override::KernelOverride;
pub(super) use params::{ResultParams, SizeParams, Windows, factor};
pub(super) use split::add_pieces;
#[cfg(not(target_family = "wasm"))]
pub(crate) use tune::tune_matmul;
pub(crate) use tuning::{Conflict, Tuning};

pub(super) fn variants() -> Vec<Variant> {
    [Kernel::variants(), pack::variants(), split::variants(), emulated::variants()].concat()
}

/// `C = activation(alpha · op(A) · op(B) + beta · C + bias)`.
pub(crate) fn matmul(ctx: &OpContext, op: &'static str, desc: &MatmulDesc) -> BackendResult<()> {
    let Some(windows) = windows(ctx, op, desc)? else {
        return Ok(());
    };
    let before = ctx.made_before();
    multiply(ctx, op, desc, &windows)?;
    let Windows { a, b, bias, c } = &windows;
    ctx.note_made(|| RouterProduct::behind(desc, [a, b, bias, c], &before?));
    Ok(())
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
        run(Call { ctx, op, desc, windows }, &plan)
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
    let [a, b, c, bias] = ctx.resolve(op, &desc.operands(op)?)?;
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
fn run(call: Call<'_>, plan: &Plan) -> BackendResult<()> {
    let Call { ctx, op, desc, windows } = call;
    if let Some(length) = slices::length(ctx, desc, plan) {
        return slices::run(call, plan, length);
    }
    let (mut desc, mut windows) = (*desc, windows.clone());
    if plan.prep[1] == Prep::Transpose {
        pack::transpose_b(ctx, op, &mut desc, &mut windows)?;
    }
    pack::align(ctx, op, &mut desc, &mut windows, plan.prep)?;
    let call = Call { ctx, op, desc: &desc, windows: &windows };
    match plan.strategy {
        Strategy::SplitK(_) => split::run(call, plan),
        // Both are for tensor cores, which no browser offers, and a page needn't load them.
        Strategy::PeelEdges if IS_NATIVE => {
            edges::parts_with_plans(call, plan).iter().try_for_each(|part| match &part.plan {
                Some(plan) => run(Call { desc: &part.desc, windows: &part.windows, ..call }, plan),
                None => launch(ctx, op, &Product::whole(&part.desc), &part.windows, plan),
            })
        }
        Strategy::Emulated(_) if IS_NATIVE => emulated::run(call, plan),
        Strategy::Whole | Strategy::PeelEdges | Strategy::Emulated(_) => {
            launch(ctx, op, &Product::whole(&desc), &windows, plan)
        }
    }
}
