//! Every kernel for convolutions on every adapter, not only those that the planner would choose there.

mod forced;

use std::process::ExitCode;
use std::sync::Arc;

use backend_api::desc::{ConvDesc, ConvShape, ImageLayout, ImageShape, Window};
use backend_api::{ComputeBackend, DType};
use backend_webgpu::WebGpuBackend;
use backend_webgpu::variants::conv_source;
use conformance::conv_in_small;
use forced::Device;
use libtest_mimic::{Failed, Trial};
use suites::Sample;

fn main() -> ExitCode {
    forced::run(kernels)
}

/// A test for each kernel that the device can run.
fn kernels(device: &Arc<Device>) -> Vec<Trial> {
    let names = forced::runnable(device, WebGpuBackend::conv_kernels(), conv_source);
    let sample = device.sample_of_a_kernel();
    names
        .map(|kernel| device.trial(&kernel.clone(), move |backend| check(backend, &kernel, sample)))
        .collect()
}

fn check(backend: &WebGpuBackend, kernel: &str, sample: Sample) -> Result<(), Failed> {
    backend.force_conv(Some(kernel))?;
    is_explained(backend, kernel)?;
    let mut cases = conv_in_small();
    // Other cases for each kernel, so that several kernels run all of them.
    cases.retain(|case| sample.has(&format!("{} {kernel}", case.path())));
    let outcome = forced::check(backend, &cases);
    backend.force_conv(None)?;
    outcome
}

/// What the backend says it would use is the kernel that is asked for, where that can make the convolution.
fn is_explained(backend: &WebGpuBackend, kernel: &str) -> Result<(), Failed> {
    let shape = ConvShape::new(ImageShape::nchw([1, 16, 12, 12]), 32, Window::new([3, 3]));
    let shape = shape.with_layout(ImageLayout::Nhwc);
    let dtype = if kernel.starts_with("cooperative") { DType::F16 } else { DType::F32 };
    let [input, filter, output] = [(); 3].map(|()| backend.alloc(1 << 16));
    let desc = ConvDesc::new(dtype, input?, filter?, output?, shape);
    let used = backend.explain_conv(&desc)?;
    for ptr in [desc.input, desc.filter, desc.output] {
        backend.free(ptr)?;
    }
    // A depthwise kernel makes none of a single group, and some tiles none of so few channels.
    let is_known = WebGpuBackend::conv_kernels().contains(&used);
    if used == kernel || (is_known && !kernel.starts_with("tiled") && kernel != "direct") {
        return Ok(());
    }
    Err(format!("{kernel} was asked for, but it says {used}").into())
}
