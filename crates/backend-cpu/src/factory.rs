//! The backend as a registry knows it.

use backend_api::{
    BackendError, BackendFactory, BackendResult, ComputeBackend, DeviceInfo, DeviceKind, Registry,
};

use crate::{CpuBackend, parallel};

/// The name of backend and device.
pub(crate) const NAME: &str = "cpu";

/// Opens the host CPU under the name `"cpu"`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuFactory;

/// Adds the backend `"cpu"` to a registry.
pub fn register(registry: &mut Registry) {
    registry.register(CpuFactory);
}

impl BackendFactory for CpuFactory {
    fn name(&self) -> &str {
        NAME
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        vec![device_info()]
    }

    fn create(&self, selector: &str) -> BackendResult<Box<dyn ComputeBackend>> {
        match selector {
            "" | "0" => Ok(Box::new(CpuBackend::new())),
            other => Err(BackendError::NoAdapter { tried: vec![format!("{NAME}:{other}")] }),
        }
    }
}

/// The host CPU.
pub(crate) fn device_info() -> DeviceInfo {
    let threads = parallel::threads();
    let ending = if threads == 1 { "" } else { "s" };
    DeviceInfo {
        selector: NAME.to_owned(),
        name: format!("host CPU ({}, {threads} thread{ending})", std::env::consts::ARCH),
        api: "host".to_owned(),
        driver: String::new(),
        kind: DeviceKind::Cpu,
    }
}
