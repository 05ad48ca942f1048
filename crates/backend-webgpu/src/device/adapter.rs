//! Which adapters there are, and which one is meant.

use std::fmt;

use backend_api::{BackendError, BackendResult, DeviceInfo, DeviceKind};

#[cfg(not(target_family = "wasm"))]
use super::compiling;

/// Storage bindings that are asked of a device: what every WebGPU device offers.
pub(crate) const LEAST_BINDINGS: usize = if cfg!(feature = "count-out-of-bounds") { 9 } else { 8 };

/// The most storage bindings of a kernel. Those with more than every device offers are planned where there is room.
pub(crate) const MAX_BINDINGS: usize = LEAST_BINDINGS + 8;

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
    /// Adapters that can't be used, with the reason, and why there is none where the system says so.
    refused: Vec<String>,
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
    let (instance, found, refused) = {
        let _opening = compiling();
        let instance = wgpu::Instance::new(descriptor);
        // Natively, nothing of it waits.
        let adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
        let (found, refused) = usable(adapters);
        (instance, found, refused)
    };
    #[cfg(target_family = "wasm")]
    let (instance, found, refused) = {
        let instance = wgpu::Instance::new(descriptor);
        let options = wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        };
        let (found, refused) = match instance.request_adapter(&options).await {
            Ok(adapter) => usable(vec![adapter]),
            Err(error) => (Vec::new(), vec![format!("navigator.gpu of the browser: {error}")]),
        };
        (instance, found, refused)
    };
    Adapters { found, instance: Some(instance), refused }
}

/// The adapters that run the portable kernels, and what the others need, in words.
fn usable(mut adapters: Vec<wgpu::Adapter>) -> (Vec<wgpu::Adapter>, Vec<String>) {
    let mut refused = Vec::new();
    adapters.retain(|adapter| {
        let info = adapter.get_info();
        let missing = missing(&info, adapter.get_downlevel_capabilities().flags, &adapter.limits());
        refused
            .extend(missing.iter().map(|need| format!("{} ({:?}) is not {need}", info.name, info.backend)));
        missing.is_none()
    });
    (adapters, refused)
}

/// What the portable kernels need and an adapter doesn't offer. Some OpenGL adapters have no compute shaders.
fn missing(info: &wgpu::AdapterInfo, flags: wgpu::DownlevelFlags, limits: &wgpu::Limits) -> Option<String> {
    let has_compute = flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS)
        && (info.backend != wgpu::Backend::Gl || compiles_compute_shaders(&info.driver_info));
    if has_compute { too_low(limits) } else { Some("a device with compute shaders".to_owned()) }
}

/// Bytes of the largest buffer and of the largest binding, at least: what the suites run with. Parameters, staging
/// and the classes of the pool need some of it.
const LEAST_BUFFER: u64 = 64 << 10;

/// Bytes of the alignment that windows and slots of parameters keep to, which is the largest of WebGPU's devices.
const ALIGNMENT: u32 = 256;

/// A limit that is lower than what the portable kernels need, or an alignment that is larger, in words.
pub(crate) fn too_low(limits: &wgpu::Limits) -> Option<String> {
    macro_rules! least {
        ($($name:ident: $least:expr),+ $(,)?) => {
            [$((stringify!($name), u64::from(limits.$name), u64::from($least))),+]
        };
    }
    let needed = wgpu::Limits::defaults();
    let bindings = LEAST_BINDINGS as u32;
    // Parameters are a uniform buffer in a group of its own, of which a slot of 256 bytes is bound.
    let table = least! {
        max_compute_invocations_per_workgroup: needed.max_compute_invocations_per_workgroup,
        max_compute_workgroup_size_x: needed.max_compute_workgroup_size_x,
        max_compute_workgroup_storage_size: needed.max_compute_workgroup_storage_size,
        max_compute_workgroups_per_dimension: needed.max_compute_workgroups_per_dimension,
        max_storage_buffers_per_shader_stage: bindings,
        max_bindings_per_bind_group: bindings,
        max_buffers_and_acceleration_structures_per_shader_stage: bindings + 1,
        max_bind_groups: 2u32,
        max_uniform_buffers_per_shader_stage: 1u32,
        max_dynamic_uniform_buffers_per_pipeline_layout: 1u32,
        max_uniform_buffer_binding_size: ALIGNMENT,
        max_buffer_size: LEAST_BUFFER,
        max_storage_buffer_binding_size: LEAST_BUFFER,
    };
    if let Some((name, _, least)) = table.into_iter().find(|(_, limit, least)| limit < least) {
        return Some(format!("a device whose {name} is at least {least}"));
    }
    let alignments = [
        ("min_storage_buffer_offset_alignment", limits.min_storage_buffer_offset_alignment),
        ("min_uniform_buffer_offset_alignment", limits.min_uniform_buffer_offset_alignment),
    ];
    let (name, _) = alignments.into_iter().find(|&(_, alignment)| alignment > ALIGNMENT)?;
    Some(format!("a device whose {name} is at most {ALIGNMENT}"))
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

    backend_api::support::sort_few_by_key(&mut candidates, |(_, info)| (info.kind.rank(), info.api == "Gl"));
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
    fn an_adapter_that_cannot_be_used_is_told_with_the_reason() {
        let info = wgpu::AdapterInfo::new(wgpu::DeviceType::IntegratedGpu, wgpu::Backend::Vulkan);
        let missing = |flags, limits| missing(&info, flags, &limits);
        let usual = wgpu::Limits::default();
        assert_eq!(missing(wgpu::DownlevelFlags::all(), usual.clone()), None);
        assert!(missing(wgpu::DownlevelFlags::empty(), usual.clone()).unwrap().contains("compute shaders"));
        let need = missing(wgpu::DownlevelFlags::all(), wgpu::Limits::downlevel_defaults()).unwrap();
        assert_eq!(need, "a device whose max_compute_workgroup_storage_size is at least 16384");
        let need = missing(
            wgpu::DownlevelFlags::all(),
            wgpu::Limits { max_storage_buffers_per_shader_stage: 4, ..usual },
        )
        .unwrap();
        assert_eq!(
            need,
            format!("a device whose max_storage_buffers_per_shader_stage is at least {LEAST_BINDINGS}")
        );
        let adapters = Adapters { found: Vec::new(), instance: None, refused: vec![need.clone()] };
        let error = find(adapters, &Selector::Best).unwrap_err();
        assert!(matches!(&error, BackendError::NoAdapter { tried } if tried[1..] == [need]), "{error:?}");
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
