//! `llama devices`: the devices that there are, and which one is taken.

use backend_api::DeviceInfo;
use model_cli::note;
use serde::Serialize;

use crate::args::DevicesArgs;
use crate::report;

#[derive(Debug, Serialize)]
struct Report {
    devices: Vec<Device>,
    /// The name of the device that `--backend auto` takes, if one opens.
    auto: Option<String>,
    /// Why it is this one, or why there is none.
    reason: String,
}

/// A device, with the fields of a model's document.
#[derive(Debug, Serialize)]
struct Device {
    backend: String,
    device: String,
    api: String,
    driver: String,
    kind: String,
}

impl From<DeviceInfo> for Device {
    fn from(info: DeviceInfo) -> Self {
        let DeviceInfo { selector: backend, name: device, api, driver, kind } = info;
        Self { backend, device, api, driver, kind: format!("{kind:?}") }
    }
}

/// A line for each device; what to do with them is told on the standard error.
pub(crate) fn run(args: &DevicesArgs) -> anyhow::Result<()> {
    let devices: Vec<Device> = model_cli::registry().available().into_iter().map(Device::from).collect();
    // Opened, as one that doesn't open is passed over.
    let (auto, reason) = match model_cli::select("auto") {
        Ok(selection) => (Some(selection.device.selector), selection.reason),
        Err(error) => (None, format!("{error:#}")),
    };
    if args.json {
        return report::json(&Report { devices, auto, reason });
    }
    for Device { backend, device, api, driver, kind } in &devices {
        let driver = if driver.is_empty() { String::new() } else { format!("; {driver}") };
        report::line(format_args!("{backend:<12}{device} ({api}, {kind}{driver})"))?;
    }
    // With an interface that there is, such as Vulkan.
    if let Some(Device { api, .. }) = devices.iter().find(|device| device.backend.starts_with("webgpu:")) {
        note(format_args!(
            "--backend takes a name of these; webgpu, the best of its devices; or webgpu: and a part of an interface's, a device's or \
             a driver's name, as webgpu:{}",
            api.to_lowercase()
        ));
    }
    match auto {
        Some(auto) => note(format_args!("auto, and no --backend, takes {auto} ({reason})")),
        None => note(format_args!("auto, and no --backend, takes none: {reason}")),
    }
    Ok(())
}
