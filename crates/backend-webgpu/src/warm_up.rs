//! Kernels compiled before operations need them.

use std::collections::HashSet;

use backend_api::{BackendResult, Operation};

use crate::WebGpuBackend;
use crate::context::Context;
use crate::kernels::Variant;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

impl WebGpuBackend {
    /// Plans the operations in a dry run and compiles the kernels that they ask for side by side.
    pub(crate) async fn warm_up(&self, operations: &[Operation<'_>]) -> BackendResult<()> {
        let op = "warm_up_async";
        let opened = self.context_async(op)?;
        let device = opened.device();
        // Planning tests each variant on tensor cores, and the test compiles it, one after the other. So what plans
        // ask for if all tests are passed is compiled and tested beforehand.
        if device.gpu.cooperative_matrices {
            let planner = Self::over(opened.untested_dry_run());
            for operation in operations {
                // An error comes again below.
                _ = operation(&planner);
            }
            let context = planner.context(op)?.context;
            let untested = context.take_untested();
            if !untested.is_empty() {
                let variants = untested.keys().copied().chain(context.take_variants()).collect();
                let untested = Mutex::new(untested);
                // What doesn't compile fails its test, below, and keeps nobody from the others. On a device that is too
                // busy or too full for one test, no others begin, each of which would wait as long.
                let is_busy = AtomicBool::new(false);
                _ = compile(device, variants, &|variant, compiled| {
                    let trial = untested.lock().remove(variant).filter(|_| compiled.is_ok());
                    if let Some(trial) = trial.filter(|_| !is_busy.load(Ordering::Relaxed))
                        && !opened.try_variant(variant, trial)
                    {
                        is_busy.store(true, Ordering::Relaxed);
                    }
                    Ok(())
                })
                .await;
            }
        }
        let planner = Self::over(opened.dry_run());
        let mut variants = HashSet::new();
        for operation in operations {
            operation(&planner)?;
            variants.extend(planner.context(op)?.context.take_variants());
        }
        compile(device, variants, &|_, compiled| compiled).await
    }
}

/// Compiles kernels by as many threads as the host has, as drivers compile each on its caller's. `then` is called with each
/// kernel and whether it compiled, on its thread, which compiles no more after an error of `then`.
#[cfg(not(any(target_family = "wasm", feature = "shuttle")))]
async fn compile(
    device: &Context,
    variants: HashSet<Variant>,
    then: &(impl Fn(&Variant, BackendResult<()>) -> BackendResult<()> + Sync),
) -> BackendResult<()> {
    use std::sync::atomic::AtomicUsize;

    let variants = longest_first(device, variants);
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(variants.len());
    if threads <= 1 {
        return compile_in_turn(device, &variants, then).await;
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(variant) = variants.get(next.fetch_add(1, Ordering::Relaxed)) {
            pollster::block_on(compile_in_turn(device, std::slice::from_ref(variant), then))?;
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

/// Kernels by the length of their texts, which is how long drivers take for them, roughly: threads that begin with the
/// longest end at about the same time.
#[cfg(not(any(target_family = "wasm", feature = "shuttle")))]
fn longest_first(device: &Context, variants: HashSet<Variant>) -> Vec<Variant> {
    let mut variants: Vec<Variant> = variants.into_iter().collect();
    variants.sort_by_cached_key(|variant| std::cmp::Reverse(device.pipelines.text_length(variant)));
    variants
}

/// Compiles kernels one after the other.
#[cfg(any(target_family = "wasm", feature = "shuttle"))]
async fn compile(
    device: &Context,
    variants: HashSet<Variant>,
    then: &impl Fn(&Variant, BackendResult<()>) -> BackendResult<()>,
) -> BackendResult<()> {
    compile_in_turn(device, &variants.into_iter().collect::<Vec<_>>(), then).await
}

async fn compile_in_turn(
    device: &Context,
    variants: &[Variant],
    then: &impl Fn(&Variant, BackendResult<()>) -> BackendResult<()>,
) -> BackendResult<()> {
    for variant in variants {
        let compiled = device.compile(variant).await;
        device.gpu.health.check()?;
        then(variant, compiled)?;
    }
    Ok(())
}
