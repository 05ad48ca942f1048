//! Backends that only say who they are.

use backend_api::{
    BackendError, BackendFactory, BackendResult, Capabilities, ComputeBackend, DeviceInfo, DeviceKind,
};

/// A device called `selector`.
pub(crate) fn device(selector: &str, kind: DeviceKind) -> DeviceInfo {
    DeviceInfo {
        selector: selector.to_owned(),
        name: format!("the {kind:?} of {selector}"),
        api: "none".to_owned(),
        driver: String::new(),
        kind,
    }
}

/// A factory of [`FakeBackend`]s.
#[derive(Clone, Debug)]
pub(crate) struct FakeFactory {
    pub(crate) name: &'static str,
    pub(crate) devices: Vec<DeviceInfo>,
    /// Selectors that can't be opened.
    pub(crate) broken: Vec<&'static str>,
}

impl FakeFactory {
    /// Devices of these kinds, `"name:0"` and so on.
    pub(crate) fn new(name: &'static str, kinds: &[DeviceKind]) -> Self {
        let devices = kinds.iter().enumerate().map(|(i, &kind)| device(&format!("{name}:{i}"), kind));
        Self { name, devices: devices.collect(), broken: Vec::new() }
    }

    /// The device `selector` is listed, but can't be opened.
    pub(crate) fn with_broken(mut self, selector: &'static str) -> Self {
        self.broken.push(selector);
        self
    }
}

impl BackendFactory for FakeFactory {
    fn name(&self) -> &str {
        self.name
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        self.devices.clone()
    }

    fn create(&self, selector: &str) -> BackendResult<Box<dyn ComputeBackend>> {
        let index = if selector.is_empty() { 0 } else { selector.parse().unwrap_or(usize::MAX) };
        match self.devices.get(index) {
            Some(info) if !self.broken.contains(&selector) => {
                Ok(Box::new(FakeBackend { info: info.clone() }))
            }
            _ => Err(BackendError::NoAdapter { tried: vec![format!("{}:{selector}", self.name)] }),
        }
    }
}

/// A backend that does nothing.
#[derive(Debug)]
pub(crate) struct FakeBackend {
    info: DeviceInfo,
}

impl ComputeBackend for FakeBackend {
    fn name(&self) -> &str {
        self.info.selector.split(':').next().unwrap_or_default()
    }

    fn init(&mut self) -> BackendResult<()> {
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        true
    }

    fn synchronize(&self) -> BackendResult<()> {
        Ok(())
    }

    fn alloc(&self, _: usize) -> BackendResult<u64> {
        Err(self.unsupported("alloc"))
    }

    fn free(&self, _: u64) -> BackendResult<()> {
        Err(self.unsupported("free"))
    }

    fn copy_htod(&self, _: u64, _: &[u8]) -> BackendResult<()> {
        Err(self.unsupported("copy_htod"))
    }

    fn copy_dtoh(&self, _: &mut [u8], _: u64) -> BackendResult<()> {
        Err(self.unsupported("copy_dtoh"))
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        Ok(Capabilities::host())
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        Ok(self.info.clone())
    }
}
