//! Calls, one by one or as a graph.

use backend_api::{BackendResult, ComputeBackend};
use backend_webgpu::WebGpuBackend;

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
