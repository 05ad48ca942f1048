//! Products whose sums are longer than the device's loops may be (see [`iterations`]): slices of k, one
//! launch after another.

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::support::checked_product;
use backend_api::{Activation, BackendResult, DType};

use super::plan::Plan;
use super::split::{Partial, combine};
use super::strategy::STEP;
use super::{Call, Part, Windows, multiply, run as run_at_once};
use crate::ops::op_context::OpContext;
use crate::ops::shared::iterations;
use crate::recorder::Window;

/// The most iterations of any kernel for each value of k.
const ITERATIONS: usize = 2;

/// The values of k in a slice, if a sum of the plan is too long for one launch.
pub(super) fn length(ctx: &OpContext, desc: &MatmulDesc, plan: &Plan) -> Option<usize> {
    let longest = plan.split().longest(desc.k).saturating_mul(ITERATIONS);
    let most = iterations::exceeded(ctx, longest)?;
    Some((most / ITERATIONS / STEP * STEP).max(STEP))
}

/// Makes each product of the batch in slices of `length` values of k. They are added up in f32, and finished
/// at the end.
pub(super) fn run(call: Call<'_>, plan: &Plan, length: usize) -> BackendResult<()> {
    let Call { ctx, op, desc, windows } = call;
    let bytes = checked_product(op, "scratch", &[desc.m, desc.n, DType::F32.size()])?;
    let sums = ctx.output(&ctx.scratch(op, bytes)?, DType::F32);
    for matrix in 0..desc.batch {
        let at = |window: &Window, operand: &Matrix| window.advanced(matrix * operand.batch_stride);
        let (a, b) = (at(&windows.a, &desc.a), at(&windows.b, &desc.b));
        for first in (0..desc.k).step_by(length) {
            let _part = ctx.begin_part();
            let slice = slice(desc, first, length);
            let a = a.advanced(first * if desc.trans_a.is_transposed() { desc.a.ld } else { 1 });
            let b = b.advanced(first * if desc.trans_b.is_transposed() { 1 } else { desc.b.ld });
            let windows = Windows { a, b, bias: ctx.null(), c: sums.clone() };
            let plan = Plan::choose(ctx, &slice, &windows);
            run_at_once(Call { desc: &slice, windows: &windows, ..call }, &plan)?;
        }
        let windows = Windows { c: at(&windows.c, &desc.c), ..windows.clone() };
        let whole = desc.with_batch(1);
        let of_matrix = Call { desc: &whole, windows: &windows, ..call };
        combine(of_matrix, plan, &Partial::whole(sums.clone()), None)?;
    }
    Ok(())
}

/// Makes a product whose operands can't be bound at once: its sums in memory of their own, in pieces, which then
/// are finished. Several matrices of a batch are finished as one.
pub(super) fn run_by_sums(ctx: &OpContext, op: &'static str, part: &Part) -> BackendResult<()> {
    let desc = &part.desc;
    let bytes = checked_product(op, "scratch", &[desc.batch, desc.m, desc.n, DType::F32.size()])?;
    let sums = ctx.output(&ctx.scratch(op, bytes)?, DType::F32);
    let windows = Windows { bias: ctx.null(), c: sums.clone(), ..part.windows.clone() };
    let mut of_sums = slice(desc, 0, desc.k).with_batch(desc.batch);
    of_sums.c.batch_stride = desc.m * desc.n;
    multiply(ctx, op, &of_sums, &windows)?;
    let windows = &*part.bound();
    let mut finished = desc.with_batch(1);
    finished.m *= desc.batch;
    let (plan, call) = (Plan::choose(ctx, desc, windows), Call { ctx, op, desc: &finished, windows });
    combine(call, &plan, &Partial::whole(sums), None)
}

/// What the values of k from `first` on add to the sums; those of the first slice replace what was there.
fn slice(desc: &MatmulDesc, first: usize, length: usize) -> MatmulDesc {
    let mut slice = desc.with_batch(1).with_activation(Activation::Identity);
    slice.k = length.min(desc.k - first);
    slice.c = Matrix::new(0, DType::F32, desc.n);
    slice.bias = None;
    slice.with_scale(1.0, if first == 0 { 0.0 } else { 1.0 })
}
