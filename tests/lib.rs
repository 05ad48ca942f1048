//! What every suite shares: the backends under test.

use std::collections::HashSet;

use backend_api::{ComputeBackend, DeviceInfo, Registry};

#[cfg(doctest)]
mod documents;

/// The environment variable that restricts the suites: selectors such as `cpu` or `webgpu:0`, or `webgpu` for all of
/// its adapters, separated by commas.
pub const BACKENDS_VARIABLE: &str = "TEST_BACKENDS";

/// Why a suite fails where there is no adapter, and what to do about it.
const NO_ADAPTER: &str = "no WebGPU adapter found; a software driver is enough, on Debian and Ubuntu: \
     apt-get install mesa-vulkan-drivers libvulkan1 (or run without: TEST_BACKENDS=cpu)";

/// A backend to run a suite on, or why there is none.
#[derive(Debug)]
pub struct BackendUnderTest {
    /// The name that a registry opens it by, such as `"webgpu:0"`.
    pub selector: String,
    /// For people, such as `"webgpu:0 llvmpipe (LLVM 19.1.7, 256 bits) (Vulkan)"`.
    pub label: String,
    /// For names of tests, such as `"webgpu:0-llvmpipe-vulkan"`.
    pub slug: String,
    opened: Result<Box<dyn ComputeBackend>, String>,
}

impl BackendUnderTest {
    /// The open backend.
    ///
    /// # Errors
    /// Why it could not be opened. A suite must fail with this text, not pass over it.
    pub fn backend(&self) -> Result<&dyn ComputeBackend, &str> {
        self.opened.as_deref().map_err(String::as_str)
    }

    fn missing(selector: &str, reason: String) -> Self {
        Self {
            selector: selector.to_owned(),
            label: selector.to_owned(),
            slug: selector.to_owned(),
            opened: Err(reason),
        }
    }

    fn open(registry: &Registry, device: &DeviceInfo) -> Self {
        let DeviceInfo { selector, name, api, .. } = device;
        let (label, slug) = if api == "host" {
            (selector.clone(), selector.clone())
        } else {
            // What follows in brackets is versions and code names.
            let short_name = name.split('(').next().unwrap_or(name);
            let slug = format!("{selector}-{}-{}", slugged(short_name), slugged(api));
            (format!("{selector} {name} ({api})"), slug)
        };
        let opened = registry.create(selector).map_err(|error| error.to_string());
        Self { selector: selector.clone(), label, slug, opened }
    }
}

/// The processor and every WebGPU adapter, or those that [`BACKENDS_VARIABLE`] names. One that is named but missing,
/// or WebGPU without any adapter, is in the list as an error.
#[must_use]
pub fn backends() -> Vec<BackendUnderTest> {
    let registry = registry();
    let devices = registry.available();
    let chosen = std::env::var(BACKENDS_VARIABLE).unwrap_or_default();
    let chosen: Vec<&str> = chosen.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let wanted = if chosen.is_empty() { vec!["cpu", "webgpu"] } else { chosen };

    let mut opened = HashSet::new();
    let mut backends = Vec::new();
    for name in wanted {
        let mut found = false;
        for device in devices.iter().filter(|device| is_named(device, name)) {
            found = true;
            if opened.insert(&device.selector) {
                backends.push(BackendUnderTest::open(&registry, device));
            }
        }
        if !found {
            let reason = match name {
                "webgpu" => NO_ADAPTER.to_owned(),
                _ => format!("{BACKENDS_VARIABLE} names {name:?}, which is none of {}", selectors(&devices)),
            };
            backends.push(BackendUnderTest::missing(name, reason));
        }
    }
    backends
}

/// A registry of the backends of this workspace.
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_webgpu::register(&mut registry);
    registry
}

fn is_named(device: &DeviceInfo, name: &str) -> bool {
    let base = device.selector.split(':').next();
    device.selector == name || base == Some(name)
}

fn selectors(devices: &[DeviceInfo]) -> String {
    let selectors: Vec<&str> = devices.iter().map(|device| device.selector.as_str()).collect();
    selectors.join(", ")
}

/// Lower-case words of letters and digits, joined by hyphens.
fn slugged(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    let words: Vec<String> = words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect();
    words.join("-")
}
