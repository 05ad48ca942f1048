//! Opening an adapter.

use std::sync::Arc;

use backend_api::{BackendError, BackendResult, DeviceInfo};

use super::Health;

/// An opened adapter.
#[derive(Debug)]
pub(crate) struct Gpu {
    /// Keeps the adapter's world alive.
    pub(crate) _instance: wgpu::Instance,
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    pub(crate) info: DeviceInfo,
    pub(crate) health: Arc<Health>,
}

/// What is used where an adapter has it. Nothing is required.
fn wanted_features() -> wgpu::Features {
    wgpu::Features::SHADER_F16
        | wgpu::Features::IMMEDIATES
        | wgpu::Features::SUBGROUP
        | wgpu::Features::TIMESTAMP_QUERY
}

/// Opens a device with everything that the adapter offers of what is used.
///
/// # Errors
/// [`NoAdapter`](BackendError::NoAdapter) if the adapter doesn't open.
pub(crate) async fn open(
    instance: wgpu::Instance,
    adapter: wgpu::Adapter,
    info: DeviceInfo,
) -> BackendResult<Gpu> {
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("backend-webgpu"),
        required_features: adapter.features() & wanted_features(),
        required_limits: adapter.limits(),
        memory_hints: wgpu::MemoryHints::Performance,
        ..Default::default()
    };
    let (device, queue) =
        adapter.request_device(&descriptor).await.map_err(|error| BackendError::NoAdapter {
            tried: vec![format!("{} = {} ({}): {error}", info.selector, info.name, info.api)],
        })?;
    let health = Health::watch(&device);
    Ok(Gpu { _instance: instance, adapter, device, queue, info, health })
}
