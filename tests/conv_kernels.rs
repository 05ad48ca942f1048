//! Every kernel for convolutions on every adapter, not only those that the planner would choose there.

mod forced;

use std::process::ExitCode;
use std::sync::Arc;

use backend_webgpu::WebGpuBackend;
use conformance::conv_in_small;
use forced::Device;
use libtest_mimic::{Failed, Trial};

fn main() -> ExitCode {
    forced::run(kernels)
}

/// A test for each kernel that the device can run.
fn kernels(device: &Arc<Device>) -> Vec<Trial> {
    let names = forced::runnable(device, WebGpuBackend::conv_kernels());
    names.map(|kernel| device.trial(&kernel.clone(), move |backend| check(backend, &kernel))).collect()
}

fn check(backend: &WebGpuBackend, kernel: &str) -> Result<(), Failed> {
    backend.force_conv(Some(kernel))?;
    let cases = conv_in_small();
    let outcome = forced::check(backend, &cases);
    backend.force_conv(None)?;
    outcome
}
