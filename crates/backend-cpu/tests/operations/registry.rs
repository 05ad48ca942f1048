//! The CPU in a registry of backends.

use backend_api::{DeviceKind, ErrorKind, Registry};

#[test]
fn a_registry_opens_it_by_name() {
    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    for name in ["cpu", "cpu:0"] {
        let selection = registry.select(name).unwrap();
        assert!(selection.backend.is_initialized());
        assert_eq!(selection.device.kind, DeviceKind::Cpu);
    }
    let error = registry.create("cpu:1").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoAdapter);
}
