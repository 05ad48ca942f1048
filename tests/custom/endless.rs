//! A kernel without an end, in a process of its own: nothing stops it on a software adapter but the end of that.

use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use backend_api::{BackendError, BackendResult, ComputeBackend, DeviceKind};
use backend_webgpu::{KernelDesc, WebGpuBackend};
use libtest_mimic::Failed;

const VARIABLE: &str = "CUSTOM_KERNELS_CHILD";

/// Longer than the child takes for anything but a wait without an end.
const LIMIT: Duration = Duration::from_secs(60);

/// Launched in many workgroups: Mesa's software drivers leave a kernel's loops after 65,535 turns.
const ENDLESS: &str = "
@group(0) @binding(0) var<storage, read_write> x: array<u32>;
@compute @workgroup_size(1) fn main() {
    loop { loop { loop { loop {
        if x[0] == 7u { break; }
        x[1] += 1u;
    } if x[0] == 7u { break; } } if x[0] == 7u { break; } } if x[0] == 7u { break; } }
}";

/// In a child, launches the kernel and waits; `None` in the parent.
pub(super) fn child() -> Option<ExitCode> {
    let selector = std::env::var(VARIABLE).ok()?;
    match launch(&selector) {
        Ok(()) => println!("<done>"),
        Err(why) => println!("{why}"),
    }
    // Without the driver's cleaning up, which would wait for the kernel.
    std::process::abort();
}

fn launch(selector: &str) -> Result<(), String> {
    let outcome = (|| -> BackendResult<Duration> {
        let mut backend = WebGpuBackend::select(selector);
        backend.init()?;
        backend.set_timeout(Duration::from_secs(2))?;
        let kernel = backend.kernel(&KernelDesc::new("endless", ENDLESS))?;
        let x = super::upload(&backend, &[0_u32; 2])?;
        backend.launch(&kernel, &[x], &[], [65_535, 65_535, 1])?;
        let start = Instant::now();
        let waited = backend.synchronize();
        // Dropped neither here nor in the caller: the device is at work.
        std::mem::forget(backend);
        waited.map(|()| start.elapsed())
    })();
    match outcome {
        Err(BackendError::Timeout { waited, .. }) if waited < Duration::from_secs(4) => Ok(()),
        // A GPU's driver ends what takes too long, with everything on the device.
        Err(BackendError::DeviceLost { .. }) => Ok(()),
        other => Err(format!("waiting for a kernel without an end: {other:?}")),
    }
}

pub(super) fn parent(backend: &WebGpuBackend) -> Result<(), Failed> {
    let info = backend.device_info()?;
    // An OpenGL call's own work isn't interrupted (docs/reliability.md). A GPU that others use, and which may have
    // to be reset, isn't hung on purpose.
    if info.api == "Gl" || info.kind != DeviceKind::SoftwareAdapter {
        return Ok(());
    }
    let program = std::env::current_exe()?;
    let selector = info.selector.trim_start_matches("webgpu:");
    let child =
        Command::new(program).env(VARIABLE, selector).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let (mut child, start) = (child?, Instant::now());
    while child.try_wait()?.is_none() {
        if start.elapsed() > LIMIT {
            child.kill()?;
            return Err(format!("the child didn't end within {LIMIT:?}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = String::from_utf8_lossy(&child.wait_with_output()?.stdout).into_owned();
    if output.contains("<done>") { Ok(()) } else { Err(output.into()) }
}
