//! Backends with what can be done to them from outside.

use std::time::Duration;

use backend_api::{BackendResult, ComputeBackend};
use backend_cpu::CpuBackend;
use backend_webgpu::WebGpuBackend;
use conformance::program::{Plain, Target};

/// How long a call waits unless a program says otherwise; longer than any of its calls takes.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Opens the backend that a selector names.
pub(crate) fn open(selector: &str) -> Result<Box<dyn Target>, String> {
    let Some(adapter) = selector.strip_prefix("webgpu:") else {
        return Ok(Box::new(Plain(CpuBackend::new())));
    };
    let mut backend = WebGpuBackend::select(adapter);
    backend.init().map_err(|error| format!("{error:?}"))?;
    Ok(Box::new(WebGpu(backend)))
}

#[derive(Debug)]
struct WebGpu(WebGpuBackend);

impl Target for WebGpu {
    fn backend(&self) -> &dyn ComputeBackend {
        &self.0
    }

    fn init(&mut self) -> BackendResult<()> {
        self.0.init()
    }

    fn flush(&self) -> BackendResult<()> {
        self.0.flush()
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> BackendResult<()> {
        self.0.set_timeout(timeout.unwrap_or(TIMEOUT))
    }

    fn import(&self, bytes: usize) -> BackendResult<u64> {
        let Some(device) = self.0.device() else { return Err(self.0.unsupported("import_buffer")) };
        self.0.import_buffer(device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("a caller's"),
            size: bytes as u64,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        }))
    }

    fn destroy_buffer(&self, ptr: u64) -> BackendResult<()> {
        self.0.export_buffer(ptr).map(|(buffer, _, _)| buffer.destroy())
    }

    fn destroy_device(&self) -> bool {
        self.0.device().map(wgpu::Device::destroy).is_some()
    }

    fn device_bytes(&self) -> usize {
        let report = self.0.device().and_then(wgpu::Device::generate_allocator_report);
        report.map_or(0, |report| report.total_reserved_bytes as usize)
    }

    fn gauges(&self) -> Vec<(&'static str, usize)> {
        vec![("kernels", self.0.compiled_kernels()), ("bind groups", self.0.cached_bind_groups())]
    }
}
