//! Kernels chosen by measurement, where a caller asks for it.

use backend_api::desc::MatmulDesc;
use backend_api::{BackendResult, ErrorKind, MathMode};

use super::kernel::Kernel;
use super::part::Part;
use super::plan::{Plan, Problem};
use super::strategy::Strategy;
use super::tuning::{Key, Tuning};
use super::{Call, KernelOverride, run, windows};
use crate::ops::op_context::OpContext;
use crate::ops::shared::long_work::{Divisible as _, parts, require_end};

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
    let whole = Part::new(*desc, windows);
    require_end(ctx, op, &whole)?;
    // A long product is made in parts, most of which have the shape of the first.
    let Some((part, _)) = parts(ctx, whole).into_iter().next() else { return Ok(()) };
    // Where sums are finished by themselves, there is no kernel for all of it.
    if part.excess() > 0 {
        return Ok(());
    }
    let (desc, mut windows) = (&part.desc, part.bound().into_owned());
    let planned = Plan::by_cost(&Problem { ctx, desc, windows: &windows }).plan;
    let key = Key::new(desc, &windows);
    // C may be an input too, so that nothing may be written there.
    let last = (desc.batch - 1) * desc.c.batch_stride + (desc.m - 1) * desc.c.ld + desc.n;
    let scratch = ctx.scratch(op, (last * desc.c.dtype.size()).next_multiple_of(4))?;
    windows.c = ctx.output(&scratch, desc.c.dtype);

    // Each in a call of its own, so that one that fails leaves no launches to the next.
    let product = |plan: &Plan| {
        let ctx = &ctx.call();
        run(Call { ctx, op, desc, windows: &windows }, plan).and_then(|()| ctx.commit(op))
    };
    let Some(time) = measure(&|| product(&planned))? else { return Ok(()) };
    let (mut best, mut least) = (planned.as_override(), time * GAIN);
    for candidate in candidates(desc, key.aligned).filter(|&candidate| candidate != planned.as_override()) {
        let Some(plan) = Plan::overridden(ctx, desc, &windows, candidate) else { continue };
        match measure(&|| product(&plan)) {
            Ok(None) => break,
            Ok(Some(time)) if time < least => (best, least) = (candidate, time),
            Ok(Some(_)) => {}
            // Pieces and copies need memory, which there may not be.
            Err(error) if matches!(error.kind(), ErrorKind::Limit | ErrorKind::OutOfMemory) => {
                tracing::debug!(%error, ?candidate, "a kernel that can't make the product here");
            }
            Err(error) => return Err(error),
        }
    }
    Tuning::of(&ctx.state).keep(key, best);
    Ok(())
}

/// Every kernel that may be of use, with every number of pieces that leaves each of them something to do, of
/// operands as they are and of copies.
fn candidates(desc: &MatmulDesc, aligned: bool) -> impl Iterator<Item = KernelOverride> {
    let (k, single) = (desc.k, desc.batch == 1);
    Kernel::all().flat_map(move |kernel| {
        let splits = [1, 2, 4, 8, 16, 32].into_iter();
        splits.filter(move |&splits| splits == 1 || single && k / splits >= 128).flat_map(move |splits| {
            let strategy = if splits > 1 { Strategy::SplitK(splits.into()) } else { Strategy::Whole };
            let packings = kernel.implementation().measured_packings(desc, aligned);
            packings.iter().map(move |&packed| KernelOverride { kernel, strategy, packed })
        })
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use backend_api::desc::Matrix;
    use backend_api::{BackendError, ComputeBackend, DType};

    use super::*;
    use crate::WebGpuBackend;

    #[test]
    fn a_kernel_without_memory_is_passed_over() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let [m, n, k] = [64, 64, 256];
        let [a, b, c] = [m * k, k * n, m * n].map(|elements| backend.alloc(4 * elements).unwrap());
        let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
        let desc = MatmulDesc::new(m, n, k, matrix(a, k), matrix(b, n), matrix(c, n));
        // The first measured is the one that is planned, and each later one that succeeds is faster.
        let tuned = |fails: &dyn Fn(usize) -> Option<BackendError>| {
            let call = backend.context("test").unwrap();
            let mut measured = 0;
            let result = tune_matmul(&call.context, "test", &desc, |_| {
                measured += 1;
                match fails(measured) {
                    Some(error) => Err(error),
                    None => Ok(Some(1.0 / f64::powi(2.0, measured as i32))),
                }
            });
            (result, measured, backend.explain_matmul(&desc).unwrap())
        };
        let (result, all, _) = tuned(&|_| None);
        result.unwrap();
        assert!(all > 3, "{all} kernels");
        let limit = BackendError::Limit { op: "test", what: "bytes", requested: 2, max: 1 };
        let full = BackendError::OutOfMemory { requested: 2, in_use: 1 };
        for error in [limit, full] {
            let plans: HashSet<String> = (2..all)
                .map(|best| {
                    let (result, measured, plan) = tuned(&|number| (number > best).then(|| error.clone()));
                    assert_eq!((result, measured), (Ok(()), all));
                    plan
                })
                .collect();
            assert!(plans.len() > 1, "{plans:?}");
        }
        let lost = BackendError::DeviceLost { reason: "test".to_owned() };
        let (result, measured, _) = tuned(&|number| (number == 3).then(|| lost.clone()));
        assert_eq!((result, measured), (Err(lost), 3));
    }
}
