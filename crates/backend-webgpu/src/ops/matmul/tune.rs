//! Kernels chosen by measurement, where a caller asks for it.

use backend_api::desc::MatmulDesc;
use backend_api::{BackendResult, MathMode};

use super::cooperative::CooperativeTile;
use super::kernel::Kernel;
use super::part::Part;
use super::plan::{Plan, Strategy};
use super::skinny::FEW;
use super::tuning::Key;
use super::{KernelOverride, run, windows};
use crate::ops::op_context::OpContext;
use crate::ops::shared::long_work::{parts, require_end};

/// Measures the kernels that can make a product and remembers the fastest. `measure` gives the seconds that a
/// work takes, or `None` when there is no time left.
pub(crate) fn tune_matmul(
    ctx: &OpContext,
    op: &'static str,
    desc: &MatmulDesc,
    mut measure: impl FnMut(&dyn Fn() -> BackendResult<()>) -> BackendResult<Option<f64>>,
) -> BackendResult<()> {
    // Another kernel has to be clearly faster, or chance would decide.
    const GAIN: f64 = 0.97;

    let Some(windows) = windows(ctx, op, desc)? else { return Ok(()) };
    if desc.math != MathMode::Standard {
        return Ok(());
    }
    let whole = Part { desc: *desc, windows };
    require_end(ctx, op, &whole)?;
    // A long product is made in parts, most of which have the shape of the first.
    let Some((Part { desc, mut windows }, _)) = parts(ctx, whole).into_iter().next() else { return Ok(()) };
    let desc = &desc;
    let planned = Plan::by_estimate(ctx, desc, &windows);
    let key = Key::new(desc, &windows);
    // C may be an input too, so that nothing may be written there.
    let last = (desc.batch - 1) * desc.c.batch_stride + (desc.m - 1) * desc.c.ld + desc.n;
    let scratch = ctx.scratch(op, (last * desc.c.dtype.size()).next_multiple_of(4))?;
    windows.c = ctx.output(op, &scratch, desc.c.dtype)?;

    let product = |plan: &Plan| run(ctx, op, desc, &windows, plan).and_then(|()| ctx.commit(op));
    let Some(time) = measure(&|| product(&planned))? else { return Ok(()) };
    let (mut best, mut least) = (planned.as_override(), time * GAIN);
    for candidate in candidates(desc, key.aligned).filter(|&candidate| candidate != planned.as_override()) {
        let Some(plan) = Plan::overridden(ctx, desc, &windows, candidate) else { continue };
        match measure(&|| product(&plan))? {
            None => break,
            Some(time) if time < least => (best, least) = (candidate, time),
            Some(_) => {}
        }
    }
    ctx.state.tuning.keep(key, best);
    Ok(())
}

/// Every kernel that may be of use, with every number of pieces that leaves each of them something to do, of
/// operands as they are and of copies.
fn candidates(desc: &MatmulDesc, aligned: bool) -> impl Iterator<Item = KernelOverride> {
    let (k, single) = (desc.k, desc.batch == 1);
    let fewest = desc.m.min(desc.n);
    let copies = move |kernel: &Kernel| {
        let may_copy = match kernel {
            Kernel::Direct(_) | Kernel::Tiled(_) => !aligned,
            Kernel::Cooperative(_) => desc.trans_b.is_transposed(),
            _ => false,
        };
        if may_copy { [false, true].as_slice() } else { &[false] }
    };
    let possible = move |kernel: &Kernel| match kernel {
        Kernel::Skinny(_) | Kernel::SkinnyCooperative(_) => fewest <= FEW,
        Kernel::Gemv(_) | Kernel::GemvDot(_) => fewest == 1,
        Kernel::Cooperative(tile) => CooperativeTile::for_sizes(desc.m, desc.n).any(|fit| fit == *tile),
        _ => true,
    };
    Kernel::all().filter(possible).flat_map(move |kernel| {
        let splits = [1, 2, 4, 8, 16, 32].into_iter();
        splits.filter(move |&splits| splits == 1 || single && k / splits >= 128).flat_map(move |splits| {
            let strategy = if splits > 1 { Strategy::SplitK(splits) } else { Strategy::Whole };
            copies(&kernel).iter().map(move |&packed| KernelOverride { kernel, strategy, packed })
        })
    })
}
