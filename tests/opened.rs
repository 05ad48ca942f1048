//! Devices that a test opens itself, for backends that are given one.

use suites::BackendUnderTest;

/// What `WebGpuBackend::from_wgpu` takes.
pub(crate) type Opened = (wgpu::Instance, wgpu::Adapter, wgpu::Device, wgpu::Queue);

/// A device of the adapter under test, described by `descriptor`.
pub(crate) fn open(
    tested: &BackendUnderTest,
    descriptor: impl FnOnce(&wgpu::Adapter) -> wgpu::DeviceDescriptor<'static>,
) -> Result<Opened, String> {
    let wanted = tested.backend()?.device_info().map_err(|error| error.to_string())?;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()))
        .into_iter()
        .find(|adapter| {
            let info = adapter.get_info();
            info.name == wanted.name && format!("{:?}", info.backend) == wanted.api
        })
        .ok_or("the adapter isn't found again")?;
    let (device, queue) = pollster::block_on(adapter.request_device(&descriptor(&adapter)))
        .map_err(|error| format!("the adapter doesn't open: {error}"))?;
    Ok((instance, adapter, device, queue))
}
