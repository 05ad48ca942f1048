//! What the suites share that force each kernel of a family in turn: a test for each kernel on each adapter.

use std::process::ExitCode;
use std::sync::Arc;

use backend_api::{BackendFactory, ComputeBackend};
use backend_webgpu::{WebGpuBackend, WebGpuFactory};
use conformance::Case;
use libtest_mimic::{Arguments, Failed, Trial};

/// How many failing cases are listed.
const LISTED: usize = 10;

/// Runs the tests that `trials` makes of each adapter, whose name it gets; no adapter is a failure.
pub(crate) fn run(trials: fn(&str, &Arc<WebGpuBackend>) -> Vec<Trial>) -> ExitCode {
    let mut all = Vec::new();
    for device in WebGpuFactory.devices() {
        let selector = device.selector.strip_prefix("webgpu:").unwrap_or_default().to_owned();
        let name = format!("{} {}", device.selector, device.name);
        let mut backend = WebGpuBackend::select(&selector);
        match backend.init() {
            Ok(()) => all.extend(trials(&name, &Arc::new(backend))),
            Err(error) => all.push(Trial::test(name, move || Err(error.into()))),
        }
    }
    if all.is_empty() {
        all.push(Trial::test("adapters", || Err("no WebGPU adapter found".into())));
    }
    // One after another: a kernel is forced for a whole backend.
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, all).exit_code()
}

/// Whether the device has matrix units, which kernels called `cooperative/…` need.
#[allow(dead_code, reason = "not every suite that shares this file forces kernels")]
pub(crate) fn has_matrix_units(backend: &WebGpuBackend) -> bool {
    backend.capabilities().is_ok_and(|capabilities| capabilities.cooperative_matrix)
}

/// Those of the kernels that the device can run.
#[allow(dead_code, reason = "not every suite that shares this file forces kernels")]
pub(crate) fn runnable(backend: &WebGpuBackend, names: Vec<String>) -> impl Iterator<Item = String> {
    let matrix_units = has_matrix_units(backend);
    names.into_iter().filter(move |name| matrix_units || !name.starts_with("cooperative"))
}

/// Runs all cases.
pub(crate) fn check(backend: &WebGpuBackend, cases: &[Case]) -> Result<(), Failed> {
    let mut failures: Vec<String> =
        cases.iter().filter_map(|case| case.run(backend).err()).map(|failure| failure.to_string()).collect();
    if failures.is_empty() {
        return Ok(());
    }
    let failed = failures.len();
    failures.truncate(LISTED);
    Err(format!("{failed} of {} cases failed:\n{}", cases.len(), failures.join("\n")).into())
}
