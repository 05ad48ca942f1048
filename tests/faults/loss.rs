//! A device that is lost between two calls.

use std::time::{Duration, Instant};

use backend_api::{ComputeBackend, DType, ErrorKind};
use backend_webgpu::WebGpuBackend;
use suites::BackendUnderTest;

use super::{deadline, every_method, program};

/// A call on a lost device must be back by then, and by then after the loss every call must tell of it.
const LIMIT: Duration = Duration::from_millis(100);

/// Opening a device again takes longer, as does the work that was under way when a device was destroyed.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the caller does first after the loss.
#[derive(Clone, Copy, Debug)]
pub(crate) enum First {
    /// Waits for the device: that must tell.
    Synchronize,
    /// Reads a result: that must tell, rather than give what was there before.
    Read,
    /// Asks whether the backend is still there.
    Ask,
}

pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    let selector = index(tested)?;
    for steps_before in 0..=program::STEPS.len() {
        for (i, first) in [First::Synchronize, First::Read, First::Ask].into_iter().enumerate() {
            // Each point and each first call meets both states in half of the runs.
            let flushed = (steps_before + i) % 2 == 0;
            lose_after(selector, steps_before, flushed, first).map_err(|why| {
                let submitted = if flushed { "submitted" } else { "recorded" };
                format!("lost after {steps_before} steps, {submitted}, {first:?} first: {why}")
            })?;
        }
    }
    Ok(())
}

/// What follows the colon of the backend's selector.
pub(crate) fn index(tested: &BackendUnderTest) -> Result<&str, String> {
    tested.backend()?;
    tested
        .selector
        .split_once(':')
        .map(|(_, index)| index)
        .ok_or_else(|| "a selector without an index".to_owned())
}

fn lose_after(selector: &str, steps_before: usize, flushed: bool, first: First) -> Result<(), String> {
    let told = |error| format!("{error:?}");
    let mut backend = WebGpuBackend::select(selector);
    backend.init().map_err(told)?;
    let ptrs = program::buffers(&backend).map_err(told)?;
    for step in &program::STEPS[..steps_before] {
        step(&backend, ptrs).map_err(told)?;
    }
    let graph = backend.capture(&mut |recorded| recorded.fill(ptrs[0], DType::F32, 4, 1.0)).map_err(told)?;
    if steps_before % 2 == 1 {
        backend.replay(graph).map_err(told)?;
    }
    if flushed {
        backend.flush().map_err(told)?;
    }
    backend.device().ok_or("no device")?.destroy();

    let (backend, outcome) = deadline::within(PATIENCE, move |steps| {
        steps.begin("the first call after the loss");
        let outcome = notice(&backend, ptrs[0], first);
        (backend, outcome)
    })?;
    outcome?;
    let (backend, outcome) = deadline::within(LIMIT, move |steps| {
        let begin = |name: &str| steps.begin(name);
        let outcome = every_method::all_fail(&backend, ptrs, ErrorKind::DeviceLost, &begin);
        let outcome = outcome.and_then(|()| match backend.replay(graph) {
            Err(error) if error.kind() == ErrorKind::DeviceLost => Ok(()),
            other => Err(format!("a replay on a lost device gave {other:?}")),
        });
        (backend, outcome)
    })?;
    outcome?;
    let (backend, outcome) = deadline::within(PATIENCE, move |steps| {
        let mut backend = backend;
        steps.begin("init");
        let outcome = backend.init();
        (backend, outcome)
    })?;
    outcome.map_err(|error| format!("init again: {error:?}"))?;
    works_anew(backend, ptrs, graph)
}

/// The first call after the loss, while work may still be under way.
pub(crate) fn notice(backend: &WebGpuBackend, ptr: u64, first: First) -> Result<(), String> {
    let start = Instant::now();
    let result = match first {
        First::Synchronize => backend.synchronize(),
        First::Read => backend.copy_dtoh(&mut [0; 4], ptr),
        First::Ask => {
            while backend.is_initialized() {
                if start.elapsed() > LIMIT {
                    return Err(format!("is_initialized() is true after {LIMIT:?}"));
                }
            }
            return Ok(());
        }
    };
    match result {
        Err(error) if error.kind() == ErrorKind::DeviceLost => Ok(()),
        other => Err(format!("it gave {other:?}, expected DeviceLost")),
    }
}

/// Whether the backend on its new device works, and knows nothing of the old one's handles.
fn works_anew(mut backend: WebGpuBackend, old: [u64; 4], graph: u64) -> Result<(), String> {
    for (name, result) in [("replay", backend.replay(graph)), ("free_graph", backend.free_graph(graph))] {
        match result {
            Err(error) if error.kind() == ErrorKind::InvalidHandle => {}
            other => return Err(format!("{name} of a graph from before the loss gave {other:?}")),
        }
    }
    for ptr in old {
        match backend.free(ptr) {
            Err(error) if error.kind() == ErrorKind::InvalidHandle => {}
            other => return Err(format!("free of a handle from before the loss gave {other:?}")),
        }
    }
    program::check(&backend)?;
    backend.init().map_err(|error| format!("init of an open backend: {error:?}"))
}
