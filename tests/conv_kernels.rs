//! Every kernel for convolutions on every adapter, not only those that the planner would choose there.

mod forced;

use std::process::ExitCode;
use std::sync::Arc;

use backend_webgpu::WebGpuBackend;
use conformance::conv_in_small;
use libtest_mimic::{Failed, Trial};

fn main() -> ExitCode {
    forced::run(kernels)
}

/// A test for each kernel that the device can run.
fn kernels(device: &str, backend: &Arc<WebGpuBackend>) -> Vec<Trial> {
    let names = forced::runnable(backend, WebGpuBackend::conv_kernels());
    let trial = |kernel: String| {
        let backend = backend.clone();
        Trial::test(format!("{device}/{kernel}"), move || check(&backend, &kernel))
    };
    names.map(trial).collect()
}

fn check(backend: &WebGpuBackend, kernel: &str) -> Result<(), Failed> {
    backend.force_conv(Some(kernel))?;
    let cases = conv_in_small();
    let outcome = forced::check(backend, &cases);
    backend.force_conv(None)?;
    outcome
}
