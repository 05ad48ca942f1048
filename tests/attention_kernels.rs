//! Every kernel for attention on every adapter, not only those that the planner would choose there: right around the edges
//! of its tile with every option, and with the keys in one piece and in several.

use std::process::ExitCode;
use std::sync::Arc;

use backend_api::{BackendFactory, ComputeBackend};
use backend_webgpu::{WebGpuBackend, WebGpuFactory};
use conformance::attention_around;
use libtest_mimic::{Arguments, Failed, Trial};

/// How many failing cases are listed.
const LISTED: usize = 10;

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for device in WebGpuFactory.devices() {
        let selector = device.selector.strip_prefix("webgpu:").unwrap_or_default().to_owned();
        let name = format!("{} {}", device.selector, device.name);
        let mut backend = WebGpuBackend::select(&selector);
        match backend.init() {
            Ok(()) => trials.extend(kernels(&name, &Arc::new(backend))),
            Err(error) => trials.push(Trial::test(name, move || Err(error.into()))),
        }
    }
    if trials.is_empty() {
        trials.push(Trial::test("adapters", || Err("no WebGPU adapter found".into())));
    }
    // One after another: a kernel is forced for a whole backend.
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test for each kernel that the device can run.
fn kernels(device: &str, backend: &Arc<WebGpuBackend>) -> Vec<Trial> {
    let matrix_units = backend.capabilities().is_ok_and(|capabilities| capabilities.cooperative_matrix);
    let names = WebGpuBackend::attention_kernels().into_iter();
    let names = names.filter(|name| matrix_units || !name.starts_with("cooperative/"));
    let names = names.flat_map(|name| {
        let pieces: &[&str] = if name.starts_with("split/") { &["", "+split3"] } else { &[""] };
        pieces.iter().map(move |pieces| format!("{name}{pieces}")).collect::<Vec<_>>()
    });
    names
        .map(|kernel| {
            let backend = backend.clone();
            Trial::test(format!("{device}/{kernel}"), move || check(&backend, &kernel))
        })
        .collect()
}

fn check(backend: &WebGpuBackend, kernel: &str) -> Result<(), Failed> {
    backend.force_attention(Some(kernel))?;
    let cases = attention_around(tile(kernel)?);
    let mut failures: Vec<String> =
        cases.iter().filter_map(|case| case.run(backend).err()).map(|failure| failure.to_string()).collect();
    backend.force_attention(None)?;
    if failures.is_empty() {
        return Ok(());
    }
    let failed = failures.len();
    failures.truncate(LISTED);
    Err(format!("{failed} of {} cases failed:\n{}", cases.len(), failures.join("\n")).into())
}

/// The queries, keys and numbers of a vector in a kernel's name; what suits a kernel that names but its rows.
fn tile(kernel: &str) -> Result<[usize; 3], Failed> {
    let sizes = kernel.split(['/', '+']).nth(1).unwrap_or_default();
    let sizes = sizes.split(['r', 'p']).next().unwrap_or_default();
    let sizes: Option<Vec<usize>> = sizes.split('x').map(|size| size.parse().ok()).collect();
    match sizes.as_deref() {
        Some(&[queries, keys, head_dim]) => Ok([queries, keys, head_dim]),
        Some(_) => Ok([3, 100, 64]),
        None => Err(format!("no tile in {kernel:?}").into()),
    }
}
