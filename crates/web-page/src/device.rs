//! A backend that is opened by name, and what a page shows of it.

use std::sync::Arc;

use backend_api::{BackendResult, ComputeBackend, DeviceInfo, Registry, Selection};
use serde::Serialize;

/// An opened backend with its device.
#[derive(Debug)]
pub struct Device {
    /// The backend, which models share.
    pub backend: Arc<dyn ComputeBackend>,
    info: DeviceInfo,
    reason: String,
}

impl Device {
    /// Opens a backend: `"auto"`, `"webgpu"` or `"cpu"`.
    ///
    /// # Errors
    /// As [`Registry::select_async`].
    pub async fn open(backend: &str) -> BackendResult<Self> {
        let mut registry = Registry::new();
        backend_cpu::register(&mut registry);
        backend_webgpu::register(&mut registry);
        let Selection { backend, device, reason } = registry.select_async(backend).await?;
        Ok(Self { backend: Arc::from(backend), info: device, reason })
    }

    /// The device as scripts get it.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            backend: self.backend.name().to_owned(),
            name: self.info.name.clone(),
            api: self.info.api.clone(),
            kind: format!("{:?}", self.info.kind),
            reason: self.reason.clone(),
        }
    }
}

/// The device as JSON for scripts.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The backend's name.
    pub backend: String,
    /// The device's name, which is empty where the browser doesn't tell it.
    pub name: String,
    /// The programming interface of the device, such as WebGPU.
    pub api: String,
    /// The kind of device.
    pub kind: String,
    /// Why it is this one.
    pub reason: String,
}
