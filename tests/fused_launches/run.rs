//! Calls, one by one or as a graph.

use std::fmt::Debug;

use backend_api::{BackendResult, ComputeBackend};
use backend_webgpu::WebGpuBackend;
use libtest_mimic::Failed;

/// Makes the calls, or a graph of them that is replayed so often; how many launches a replay makes, or 0. `warms_up` says that
/// a warm-up of the calls comes first, after which a capture has to compile nothing.
pub(crate) fn run(
    backend: &WebGpuBackend,
    replays: Option<usize>,
    warms_up: bool,
    calls: &(dyn Fn(&dyn ComputeBackend) -> BackendResult<()> + Sync),
) -> BackendResult<usize> {
    if warms_up {
        pollster::block_on(backend.warm_up_async(&[&calls]))?;
    }
    let Some(replays) = replays else { return calls(backend).map(|()| 0) };
    let compiled = backend.compiled_kernels();
    let graph = backend.capture(&mut |graph| calls(graph))?;
    if warms_up {
        assert_eq!(backend.compiled_kernels(), compiled, "kernels are compiled after a warm-up");
    }
    let launches = backend.launches(graph)?;
    (0..replays).try_for_each(|_| backend.replay(graph))?;
    backend.free_graph(graph)?;
    Ok(launches)
}

/// Requires that a graph of calls has at least `least` launches, and leaves the same bits as the calls without a graph.
pub(crate) fn require_apart(
    calls: &str,
    launches: usize,
    least: usize,
    [found, expected]: [&dyn Debug; 2],
) -> Result<(), Failed> {
    if launches < least {
        return Err(format!("{calls}: {launches} launches").into());
    }
    // As texts: what nothing writes stays the NaN that it was.
    let [found, expected] = [found, expected].map(|results| format!("{results:?}"));
    if found == expected { Ok(()) } else { Err(format!("{calls}: {found}, not {expected}").into()) }
}
