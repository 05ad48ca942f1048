//! A budget of memory.

use backend_api::{BackendError, BackendResult, ComputeBackend};
use suites::{BackendUnderTest, registry};

use super::program;

const MIB: usize = 1 << 20;

pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = registry().create(&tested.selector).map_err(|error| format!("{error:?}"))?;
    let backend = backend.as_ref();
    let told = |error| format!("{error:?}");

    // A megabyte more than is used: allocations may be rounded up.
    backend.set_memory_budget(Some(9 * MIB)).map_err(told)?;
    if backend.memory_stats().budget != Some(9 * MIB) {
        return Err(format!("the budget isn't told: {:?}", backend.memory_stats()));
    }
    expect_none_left(backend, 10 * MIB)?;
    expect_none_left(backend, usize::MAX / 2)?;
    let halves = [backend.alloc(4 * MIB), backend.alloc(4 * MIB)];
    let [first, second]: [u64; 2] = halves
        .into_iter()
        .collect::<BackendResult<Vec<_>>>()
        .map_err(told)?
        .try_into()
        .map_err(|_| "two halves")?;
    expect_none_left(backend, 2 * MIB)?;
    let view = backend.view(first, MIB, MIB).map_err(told)?;
    backend.free(first).map_err(told)?;
    expect_none_left(backend, 4 * MIB).map_err(|why| format!("a view keeps its allocation: {why}"))?;
    backend.free(view).map_err(told)?;
    let again = backend.alloc(4 * MIB).map_err(told)?;
    for ptr in [again, second] {
        backend.free(ptr).map_err(told)?;
    }
    // What is kept for reuse counts, but gives way.
    let whole = backend.alloc(8 * MIB).map_err(told)?;
    backend.set_memory_budget(Some(MIB)).map_err(told)?;
    expect_none_left(backend, 1024)
        .map_err(|why| format!("memory in use beyond a new budget stays: {why}"))?;
    backend.free(whole).map_err(told)?;
    backend.set_memory_budget(None).map_err(told)?;
    let large = backend.alloc(16 * MIB).map_err(told)?;
    backend.free(large).map_err(told)?;
    backend.trim().map_err(told)?;
    let stats = backend.memory_stats();
    if (stats.in_use, stats.pooled, stats.handles) != (0, 0, 0) {
        return Err(format!("after freeing and trimming: {stats:?}"));
    }
    program::check(backend)
}

fn expect_none_left(backend: &dyn ComputeBackend, bytes: usize) -> Result<(), String> {
    let before = backend.memory_stats();
    match backend.alloc(bytes) {
        Err(BackendError::OutOfMemory { requested, .. }) if requested >= bytes => {}
        // A device may have a limit below the size asked for.
        Err(BackendError::Limit { requested, .. }) if requested >= bytes => {}
        other => return Err(format!("alloc of {bytes} gave {other:?}, expected OutOfMemory")),
    }
    let after = backend.memory_stats();
    if (after.in_use, after.handles) == (before.in_use, before.handles) {
        Ok(())
    } else {
        Err(format!("a refused alloc changed {before:?} to {after:?}"))
    }
}
