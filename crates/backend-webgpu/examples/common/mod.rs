//! How the examples choose a device.

use backend_api::{BackendResult, ComputeBackend, Registry};

/// The best device, or the one that COMPUTE_BACKEND names, after its name is printed.
pub(crate) fn select() -> BackendResult<Box<dyn ComputeBackend>> {
    let mut registry = Registry::new();
    backend_webgpu::register(&mut registry);
    let selection = registry.select("auto")?;
    println!("{} ({})", selection.device.name, selection.device.api);
    Ok(selection.backend)
}
