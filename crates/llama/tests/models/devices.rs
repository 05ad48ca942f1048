//! The backends under test.

use backend_api::Registry;

/// Restricts the tests to some backends: selectors such as `cpu` or `webgpu:0`, separated by commas, or `webgpu` for
/// all adapters; `webgpu:swiftshader` for those whose name, interface or driver contains that.
const BACKENDS_VARIABLE: &str = "TEST_BACKENDS";

pub(crate) fn registry() -> Registry {
    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_webgpu::register(&mut registry);
    registry
}

/// Selectors of the devices that are asked for. One that isn't there is in the list too, so that opening it fails.
pub(crate) fn selectors() -> Vec<String> {
    let devices = registry().available();
    let asked = std::env::var(BACKENDS_VARIABLE).unwrap_or_default();
    let asked = if asked.trim().is_empty() { "cpu,webgpu".to_owned() } else { asked };
    let mut selectors = Vec::new();
    for name in asked.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let (backend, part) = name.split_once(':').unwrap_or((name, ""));
        let is_meant = |device: &&backend_api::DeviceInfo| {
            let texts = [&device.name, &device.api, &device.driver].map(|text| text.to_lowercase());
            let is_of_backend = device.selector.split(':').next() == Some(backend);
            let is_part = part.parse::<usize>().is_err()
                && texts.iter().any(|text| text.contains(&part.to_lowercase()));
            device.selector == name || is_of_backend && (part.is_empty() || is_part)
        };
        let meant: Vec<_> = devices.iter().filter(is_meant).map(|device| device.selector.clone()).collect();
        selectors.extend(if meant.is_empty() { vec![name.to_owned()] } else { meant });
    }
    selectors
}
