//! The backend as a registry knows it.

use backend_api::{
    BackendError, BackendFactory, BackendFuture, BackendResult, ComputeBackend, DeviceInfo, Registry,
};

use crate::VerifyBackend;

/// The backend's name.
pub(crate) const NAME: &str = "verify";

/// What the first backend is compared with unless another one is named.
const DEFAULT_SECOND: &str = "cpu";

/// Opens two backends of a registry as one that compares them.
#[derive(Clone, Debug)]
pub struct VerifyFactory {
    registry: Registry,
}

impl VerifyFactory {
    /// Of the backends that `registry` knows by now.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self { registry: registry.clone() }
    }
}

/// Adds `"verify:FIRST,SECOND"`, of any two backends that were registered before. `"auto"` never chooses it.
pub fn register(registry: &mut Registry) {
    registry.register(VerifyFactory::new(registry));
}

/// The names of the two backends: those around the last comma, the second being the CPU without one.
fn names(selector: &str) -> BackendResult<[&str; 2]> {
    let (first, second) = selector.rsplit_once(',').unwrap_or((selector, DEFAULT_SECOND));
    let names = [first.trim(), second.trim()];
    let wanted = "two backends by name are needed, as in \"verify:webgpu:0,cpu\"";
    // "auto" may mean what the environment names, which is this backend.
    let wrong = if names.contains(&"auto") {
        format!("\"auto\" names no backend here: {wanted}")
    } else if names.contains(&"") {
        wanted.to_owned()
    } else {
        return Ok(names);
    };
    Err(BackendError::NoAdapter { tried: vec![format!("\"{NAME}:{selector}\": {wrong}")] })
}

impl BackendFactory for VerifyFactory {
    fn name(&self) -> &str {
        NAME
    }

    /// None: it is no device of its own.
    fn devices(&self) -> Vec<DeviceInfo> {
        Vec::new()
    }

    fn create(&self, selector: &str) -> BackendResult<Box<dyn ComputeBackend>> {
        let [first, second] = names(selector)?;
        let verify = VerifyBackend::new(self.registry.create(first)?, self.registry.create(second)?)?;
        Ok(Box::new(verify))
    }

    fn create_async<'a>(&'a self, selector: &'a str) -> BackendFuture<'a, Box<dyn ComputeBackend>> {
        Box::pin(async move {
            let [first, second] = names(selector)?;
            let first = self.registry.select_async(first).await?.backend;
            let second = self.registry.select_async(second).await?.backend;
            let verify: Box<dyn ComputeBackend> = Box::new(VerifyBackend::new(first, second)?);
            Ok(verify)
        })
    }
}

#[cfg(test)]
mod tests {
    use backend_api::ErrorKind;

    use super::*;

    #[test]
    fn the_last_comma_parts_the_names() {
        assert_eq!(names("webgpu:0,cpu"), Ok(["webgpu:0", "cpu"]));
        assert_eq!(names("webgpu:mesa, 256 bits, cpu"), Ok(["webgpu:mesa, 256 bits", "cpu"]));
        assert_eq!(names("webgpu:vulkan"), Ok(["webgpu:vulkan", "cpu"]));
        for wrong in ["", ",cpu", "cpu,", "auto,cpu", "cpu,auto"] {
            assert_eq!(names(wrong).unwrap_err().kind(), ErrorKind::NoAdapter, "{wrong}");
        }
        let said = names("auto,cpu").unwrap_err().to_string();
        assert!(said.contains("\"verify:auto,cpu\": \"auto\" names no backend here"), "{said}");
    }

    #[test]
    fn a_registry_opens_it_and_never_by_itself() {
        let mut registry = Registry::new();
        backend_cpu::register(&mut registry);
        register(&mut registry);
        assert_eq!(registry.names(), ["cpu", "verify"]);
        assert_eq!(registry.available().len(), 1);
        let selection = registry.select("verify:cpu,cpu").unwrap();
        assert_eq!((selection.backend.name(), &*selection.device.selector), ("verify", "verify:cpu,cpu"));
        assert_eq!(registry.create("verify:cpu,gpu").unwrap_err().kind(), ErrorKind::UnknownBackend);
        assert_eq!(registry.create("verify:verify:cpu,cpu").unwrap_err().kind(), ErrorKind::UnknownBackend);
    }
}
