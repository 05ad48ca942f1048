//! A machine without any driver.

use std::time::{Duration, Instant};

use backend_api::{ComputeBackend, ErrorKind, OVERRIDE_VARIABLE};
use backend_webgpu::WebGpuBackend;

use super::child;

/// No adapter must be an answer by then.
const LIMIT: Duration = Duration::from_secs(5);

pub(crate) fn run() -> Result<(), String> {
    let mut command = child::this_program()?;
    for variable in ["VK_ICD_FILENAMES", "VK_DRIVER_FILES", "__EGL_VENDOR_LIBRARY_FILENAMES"] {
        command.env(variable, "/nonexistent");
    }
    command.env_remove(OVERRIDE_VARIABLE);
    child::expect_success("no_adapter", command, 4 * LIMIT)?;
    Ok(())
}

pub(crate) fn child() -> Result<(), String> {
    let start = Instant::now();
    let mut fresh = WebGpuBackend::new();
    for result in
        [WebGpuBackend::open().map(drop), fresh.init(), suites::registry().create("webgpu").map(drop)]
    {
        match result {
            Err(error) if error.kind() == ErrorKind::NoAdapter => {}
            other => return Err(format!("expected NoAdapter, got {other:?}")),
        }
    }
    if start.elapsed() > LIMIT {
        return Err(format!("three times NoAdapter took {:?}", start.elapsed()));
    }
    if WebGpuBackend::is_available() {
        return Err("is_available() says yes".to_owned());
    }
    if fresh.is_initialized() {
        return Err("is_initialized() after a failed init()".to_owned());
    }
    let selection = suites::registry().select("auto").map_err(|error| format!("auto: {error}"))?;
    if selection.device.api != "host" || selection.reason.is_empty() {
        return Err(format!("auto gave {selection:?}"));
    }
    let buffer = selection.backend.alloc(16).map_err(|error| format!("the fallback: {error}"))?;
    selection.backend.free(buffer).map_err(|error| format!("the fallback: {error}"))
}
