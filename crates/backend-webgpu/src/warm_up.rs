//! Kernels compiled before operations need them.

use std::collections::HashSet;

use backend_api::{BackendResult, Operation};

use crate::WebGpuBackend;
use crate::context::Context;
use crate::kernels::Variant;

impl WebGpuBackend {
    /// Plans the operations in a dry run and compiles the kernels that they ask for side by side.
    pub(crate) async fn warm_up(&self, operations: &[Operation<'_>]) -> BackendResult<()> {
        let op = "warm_up_async";
        let opened = self.context_async(op)?;
        // Planning tests each variant on tensor cores, and the test compiles it, one after the other. So what plans
        // ask for if all tests are passed is compiled beforehand.
        if opened.device().gpu.cooperative_matrices {
            let planner = Self::over(opened.untested_dry_run());
            for operation in operations {
                // An error comes again below.
                _ = operation(&planner);
            }
            let context = planner.context(op)?.context;
            let mut variants = context.take_untested();
            if !variants.is_empty() {
                variants.extend(context.take_variants());
                // What doesn't compile fails its test.
                _ = compile(opened.device(), &variants.into_iter().collect::<Vec<_>>()).await;
            }
        }
        let planner = Self::over(opened.dry_run());
        let mut variants = HashSet::new();
        for operation in operations {
            operation(&planner)?;
            variants.extend(planner.context(op)?.context.take_variants());
        }
        compile(opened.device(), &variants.into_iter().collect::<Vec<_>>()).await
    }
}

/// Compiles kernels by as many threads as the host has, as drivers compile each on its caller's.
#[cfg(not(any(target_family = "wasm", feature = "shuttle")))]
async fn compile(device: &Context, variants: &[Variant]) -> BackendResult<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(variants.len());
    if threads <= 1 {
        return compile_in_turn(device, variants).await;
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(variant) = variants.get(next.fetch_add(1, Ordering::Relaxed)) {
            pollster::block_on(compile_in_turn(device, std::slice::from_ref(variant)))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| std::thread::Builder::new().spawn_scoped(scope, work)).collect();
        // A thread that the system refuses leaves its part to this one.
        let own = if workers.iter().any(Result::is_err) { work() } else { Ok(()) };
        let ended = workers
            .into_iter()
            .flatten()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.fold(own, Result::and)
    })
}

/// Compiles kernels one after the other.
#[cfg(any(target_family = "wasm", feature = "shuttle"))]
async fn compile(device: &Context, variants: &[Variant]) -> BackendResult<()> {
    compile_in_turn(device, variants).await
}

async fn compile_in_turn(device: &Context, variants: &[Variant]) -> BackendResult<()> {
    for variant in variants {
        device.compile(variant).await?;
        device.gpu.health.check()?;
    }
    Ok(())
}
