//! The backend in a registry.

use backend_api::{BackendFactory, BackendFuture, BackendResult, ComputeBackend, DeviceInfo, Registry};

use crate::WebGpuBackend;
use crate::device;

/// Makes [`WebGpuBackend`]s under the name `"webgpu"`. A selector is an adapter's index, or a part of the
/// name of its interface (`"vulkan"`, `"gl"`) or of its own name (`"nvidia"`).
#[derive(Clone, Copy, Debug, Default)]
pub struct WebGpuFactory;

/// Adds the backend to a registry.
pub fn register(registry: &mut Registry) {
    registry.register(WebGpuFactory);
}

impl BackendFactory for WebGpuFactory {
    fn name(&self) -> &str {
        "webgpu"
    }

    #[cfg(not(target_family = "wasm"))]
    fn devices(&self) -> Vec<DeviceInfo> {
        pollster::block_on(list())
    }

    /// A browser tells its adapter only asynchronously.
    #[cfg(target_family = "wasm")]
    fn devices(&self) -> Vec<DeviceInfo> {
        Vec::new()
    }

    fn create(&self, selector: &str) -> BackendResult<Box<dyn ComputeBackend>> {
        let mut backend = WebGpuBackend::select(selector);
        backend.init()?;
        Ok(Box::new(backend))
    }

    fn create_async<'a>(&'a self, selector: &'a str) -> BackendFuture<'a, Box<dyn ComputeBackend>> {
        Box::pin(async move {
            let mut backend = WebGpuBackend::select(selector);
            backend.init_async().await?;
            Ok(Box::new(backend) as Box<dyn ComputeBackend>)
        })
    }

    fn devices_async(&self) -> BackendFuture<'_, Vec<DeviceInfo>> {
        Box::pin(async { Ok(list().await) })
    }
}

async fn list() -> Vec<DeviceInfo> {
    let adapters = device::enumerate().await;
    adapters.found.iter().enumerate().map(|(i, adapter)| device::describe(i, &adapter.get_info())).collect()
}
