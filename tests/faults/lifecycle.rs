//! Opening a backend, and threads that end badly.

use std::thread;

use backend_api::{ComputeBackend, ErrorKind, UnaryOp};
use backend_webgpu::WebGpuBackend;
use suites::{BackendUnderTest, registry};

use super::{every_method, program};

pub(crate) fn not_initialized(_: &BackendUnderTest) -> Result<(), String> {
    let fresh = WebGpuBackend::new();
    if fresh.is_initialized() {
        return Err("a fresh backend is initialized".to_owned());
    }
    every_method::all_fail(&fresh, [1, 2, 3, 4], ErrorKind::NotInitialized, &|_| {})?;
    let stats = fresh.memory_stats();
    if stats.in_use + stats.handles + stats.pooled + stats.staging > 0 {
        return Err(format!("a fresh backend has memory: {stats:?}"));
    }
    Ok(())
}

pub(crate) fn init_is_idempotent(tested: &BackendUnderTest) -> Result<(), String> {
    let told = |error| format!("{error:?}");
    let mut backend = registry().create(&tested.selector).map_err(told)?;
    let ptrs = program::buffers(backend.as_ref()).map_err(told)?;
    backend.copy_htod(ptrs[0], &[5; 4]).map_err(told)?;
    let before = (backend.device_info().map_err(told)?, backend.memory_stats());
    for _ in 0..2 {
        backend.init().map_err(told)?;
    }
    let mut kept = [0; 4];
    backend.copy_dtoh(&mut kept, ptrs[0]).map_err(told)?;
    let after = (backend.device_info().map_err(told)?, backend.memory_stats());
    if kept != [5; 4] || after.0 != before.0 || after.1.handles != before.1.handles {
        return Err(format!("init() again changed an open backend: {before:?}, {after:?}"));
    }
    every_method::all_work(backend.as_ref(), ptrs)
}

/// Threads panic between their calls while others work; the others go on, and so does the backend.
pub(crate) fn a_panicking_thread(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = tested.backend()?;
    let results: Vec<Result<(), String>> = thread::scope(|scope| {
        let panicking: Vec<_> = (0..4).map(|_| scope.spawn(|| panic_at_work(backend))).collect();
        let working: Vec<_> =
            (0..2).map(|_| scope.spawn(|| (0..10).try_for_each(|_| program::check(backend)))).collect();
        let panicked = panicking.into_iter().map(|thread| match thread.join() {
            Ok(why) => Err(format!("a thread that should panic returned {why:?}")),
            Err(_) => Ok(()),
        });
        let worked = working
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a working thread panicked".to_owned())));
        panicked.chain(worked).collect()
    });
    results.into_iter().collect::<Result<(), String>>()?;
    program::check(backend)
}

/// Panics with a handle live and work recorded.
fn panic_at_work(backend: &dyn ComputeBackend) -> Result<(), String> {
    let ptr = backend.alloc(64).map_err(|error| format!("{error:?}"))?;
    backend.copy_htod(ptr, &[0; 64]).map_err(|error| format!("{error:?}"))?;
    backend.unary(UnaryOp::Neg, ptr, ptr, 16).map_err(|error| format!("{error:?}"))?;
    // Without the hook: the suite's output needn't show panics that are meant.
    std::panic::resume_unwind(Box::new("meant"));
}
