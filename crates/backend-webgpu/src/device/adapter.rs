//! Which adapters there are, and which one is meant.

use std::fmt;

use backend_api::{BackendError, BackendResult, DeviceInfo, DeviceKind};

#[cfg(not(target_family = "wasm"))]
use super::compiling;

/// The most storage bindings of a kernel: what every WebGPU device offers.
pub(crate) const MAX_BINDINGS: usize = if cfg!(feature = "count-out-of-bounds") { 9 } else { 8 };

/// Which adapter to open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Selector {
    /// The one of the lowest [`rank`](DeviceKind::rank).
    #[default]
    Best,
    /// By its place in the list of all adapters.
    Index(usize),
    /// The best one whose interface, name or driver contains this, in lower case.
    Text(String),
}

impl From<&str> for Selector {
    fn from(text: &str) -> Self {
        match text.parse() {
            _ if text.is_empty() => Self::Best,
            Ok(index) => Self::Index(index),
            Err(_) => Self::Text(text.to_lowercase()),
        }
    }
}

/// What a user gives to a registry to select the adapter.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Best => f.write_str("webgpu"),
            Self::Index(index) => write!(f, "webgpu:{index}"),
            Self::Text(text) => write!(f, "webgpu:{text}"),
        }
    }
}

/// The adapters that can be used, and what else was tried.
#[derive(Debug)]
pub(crate) struct Adapters {
    pub(crate) found: Vec<wgpu::Adapter>,
    /// What found them; `None` only within the drop.
    instance: Option<wgpu::Instance>,
    /// Why there is none, where the system says so.
    refused: Option<String>,
}

/// With the last handle of an instance, its drivers close what they have opened.
#[cfg(not(target_family = "wasm"))]
impl Drop for Adapters {
    fn drop(&mut self) {
        let _opening = compiling();
        self.found.clear();
        self.instance = None;
    }
}

/// Every adapter, in a fixed order. A browser has one at most.
pub(crate) async fn enumerate() -> Adapters {
    // The default flags add validation of indirect calls, which caps buffers at 4 GiB.
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle().with_env();
    descriptor.flags = wgpu::InstanceFlags::empty();
    #[cfg(not(target_family = "wasm"))]
    let (instance, adapters, refused) = {
        let _opening = compiling();
        let instance = wgpu::Instance::new(descriptor);
        // Natively, nothing of it waits.
        let mut adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
        adapters.retain(runs_kernels);
        (instance, adapters, None)
    };
    #[cfg(target_family = "wasm")]
    let (instance, adapters, refused) = {
        let instance = wgpu::Instance::new(descriptor);
        let options = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        let (mut adapters, refused) = match instance.request_adapter(&options).await {
            Ok(adapter) => (vec![adapter], None),
            Err(error) => (Vec::new(), Some(format!("navigator.gpu of the browser: {error}"))),
        };
        adapters.retain(runs_kernels);
        (instance, adapters, refused)
    };
    Adapters { found: adapters, instance: Some(instance), refused }
}

/// Whether the adapter offers what the portable kernels need. Some OpenGL adapters have no compute shaders.
fn runs_kernels(adapter: &wgpu::Adapter) -> bool {
    let info = adapter.get_info();
    adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
        && too_low(&adapter.limits()).is_none()
        && (info.backend != wgpu::Backend::Gl || compiles_compute_shaders(&info.driver_info))
}

/// Bytes of the largest buffer and of the largest binding, at least: what the suites run with. Parameters, staging
/// and the classes of the pool need some of it.
const LEAST_BUFFER: u64 = 64 << 10;

/// A limit that is lower than what the portable kernels need, in words.
pub(crate) fn too_low(limits: &wgpu::Limits) -> Option<String> {
    let needed = wgpu::Limits::downlevel_defaults();
    let table = [
        (
            "max_compute_invocations_per_workgroup",
            limits.max_compute_invocations_per_workgroup,
            needed.max_compute_invocations_per_workgroup,
        ),
        (
            "max_compute_workgroup_storage_size",
            limits.max_compute_workgroup_storage_size,
            needed.max_compute_workgroup_storage_size,
        ),
        (
            "max_compute_workgroups_per_dimension",
            limits.max_compute_workgroups_per_dimension,
            needed.max_compute_workgroups_per_dimension,
        ),
        (
            "max_storage_buffers_per_shader_stage",
            limits.max_storage_buffers_per_shader_stage,
            MAX_BINDINGS as u32,
        ),
    ];
    let bytes = [
        ("max_buffer_size", limits.max_buffer_size, LEAST_BUFFER),
        ("max_storage_buffer_binding_size", limits.max_storage_buffer_binding_size, LEAST_BUFFER),
    ];
    let counts = table.into_iter().map(|(name, limit, least)| (name, u64::from(limit), u64::from(least)));
    let (name, _, least) = counts.chain(bytes).find(|(_, limit, least)| limit < least)?;
    Some(format!("a device whose {name} is at least {least}"))
}

/// Whether shaders for an OpenGL of this version can have what kernels need: 4.3, or 3.1 of OpenGL ES. wgpu
/// also counts older ones with an extension, for which its compiler then has no language.
fn compiles_compute_shaders(version: &str) -> bool {
    let needed = if version.contains("OpenGL ES") { (3, 1) } else { (4, 3) };
    let number = |text: &str| {
        let mut parts = text.split('.').map(str::parse);
        Some::<(u32, u32)>((parts.next()?.ok()?, parts.next()?.ok()?))
    };
    version.split_whitespace().find_map(number).is_none_or(|version| version >= needed)
}

/// What a registry shows of the adapter at `index`.
pub(crate) fn describe(index: usize, info: &wgpu::AdapterInfo) -> DeviceInfo {
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => DeviceKind::DiscreteGpu,
        wgpu::DeviceType::IntegratedGpu => DeviceKind::IntegratedGpu,
        wgpu::DeviceType::VirtualGpu => DeviceKind::VirtualGpu,
        wgpu::DeviceType::Cpu => DeviceKind::SoftwareAdapter,
        // OpenGL doesn't tell; llvmpipe is the renderer of Mesa on a CPU.
        _ if info.name.to_lowercase().contains("llvmpipe") => DeviceKind::SoftwareAdapter,
        _ => DeviceKind::Other,
    };
    DeviceInfo {
        selector: format!("webgpu:{index}"),
        // Most browsers don't tell pages what the adapter is called.
        name: if info.name.is_empty() { "WebGPU adapter".to_owned() } else { info.name.clone() },
        api: format!("{:?}", info.backend),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        kind,
    }
}

/// The adapter that is meant, with its description.
///
/// # Errors
/// [`NoAdapter`](BackendError::NoAdapter) with the adapters that there are.
pub(crate) fn find(
    adapters: Adapters,
    selector: &Selector,
) -> BackendResult<(wgpu::Instance, wgpu::Adapter, DeviceInfo)> {
    let mut candidates: Vec<_> = adapters
        .found
        .iter()
        .enumerate()
        .map(|(index, adapter)| (adapter, describe(index, &adapter.get_info())))
        .collect();
    let mut tried = vec![selector.to_string()];
    tried.extend(adapters.refused.clone());
    tried.extend(
        candidates.iter().map(|(_, info)| format!("{} = {} ({})", info.selector, info.name, info.api)),
    );

    candidates.sort_by_key(|(_, info)| (info.kind.rank(), info.api == "Gl"));
    let is_meant = |info: &DeviceInfo| match selector {
        Selector::Best => true,
        Selector::Index(index) => info.selector == format!("webgpu:{index}"),
        Selector::Text(text) => {
            [&info.api, &info.name, &info.driver].iter().any(|part| part.to_lowercase().contains(text))
        }
    };
    let meant = candidates.into_iter().find(|(_, info)| is_meant(info));
    (adapters.instance.clone().zip(meant))
        .map(|(instance, (adapter, info))| (instance, adapter.clone(), info))
        .ok_or(BackendError::NoAdapter { tried })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_opengl_has_no_compute_shaders() {
        assert!(compiles_compute_shaders("4.5 (Core Profile) Mesa 22.3.6"));
        assert!(compiles_compute_shaders("OpenGL ES 3.2 NVIDIA 580.159"));
        assert!(compiles_compute_shaders("a driver that doesn't tell"));
        assert!(!compiles_compute_shaders("3.3.0 NVIDIA 580.159.04"));
        assert!(!compiles_compute_shaders("OpenGL ES 3.0 Mesa"));
    }

    #[test]
    fn selectors_are_indices_or_text() {
        assert_eq!(Selector::from(""), Selector::Best);
        assert_eq!(Selector::from("1"), Selector::Index(1));
        assert_eq!(Selector::from("Vulkan"), Selector::Text("vulkan".to_owned()));
    }

    #[test]
    fn selectors_are_shown_as_given() {
        let shown = ["", "1", "Vulkan"].map(|text| Selector::from(text).to_string());
        assert_eq!(shown, ["webgpu", "webgpu:1", "webgpu:vulkan"]);
    }
}
