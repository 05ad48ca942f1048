//! Every kernel for matrix products on every adapter, not only those that the planner would choose there: right around
//! the edges of its tile in all layouts, in one piece and in several, and twice the same bits.

use std::process::ExitCode;
use std::sync::Arc;

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{BackendFactory, BackendResult, ComputeBackend, DType};
use backend_webgpu::{WebGpuBackend, WebGpuFactory};
use conformance::matmul_around;
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
    let names = WebGpuBackend::matmul_kernels().into_iter();
    let names = names.filter(|name| matrix_units || !name.starts_with("cooperative/"));
    let names = names.flat_map(|name| ["", "+split3"].map(|pieces| format!("{name}{pieces}")));
    let mut trials = Vec::new();
    for kernel in names {
        let forced = backend.clone();
        trials.push(Trial::test(format!("{device}/{kernel}"), move || check(&forced, &kernel)));
    }
    trials
}

fn check(backend: &WebGpuBackend, kernel: &str) -> Result<(), Failed> {
    backend.force_matmul(Some(kernel))?;
    let outcome = right_around_its_tile(backend, kernel).and_then(|()| repeatable(backend));
    backend.force_matmul(None)?;
    outcome
}

fn right_around_its_tile(backend: &WebGpuBackend, kernel: &str) -> Result<(), Failed> {
    let cases = matmul_around(tile(kernel)?);
    let mut failures: Vec<String> =
        cases.iter().filter_map(|case| case.run(backend).err()).map(|failure| failure.to_string()).collect();
    if failures.is_empty() {
        return Ok(());
    }
    let failed = failures.len();
    failures.truncate(LISTED);
    Err(format!("{failed} of {} cases failed:\n{}", cases.len(), failures.join("\n")).into())
}

/// The m, n and k in a kernel's name.
fn tile(kernel: &str) -> Result<[usize; 3], Failed> {
    let sizes = kernel.split(['/', '+']).nth(1).unwrap_or_default();
    let sizes: Option<Vec<usize>> = sizes.split('x').map(|size| size.parse().ok()).collect();
    sizes.and_then(|sizes| sizes.try_into().ok()).ok_or_else(|| format!("no tile in {kernel:?}").into())
}

/// The same product twice, of numbers whose sums depend on their order.
fn repeatable(backend: &WebGpuBackend) -> Result<(), Failed> {
    const SIZE: usize = 65;
    let numbers: Vec<f32> = (0..SIZE * SIZE).map(|i| 1.0 / (1 + i % 97) as f32).collect();
    let run = || -> BackendResult<Vec<u8>> {
        let bytes: &[u8] = bytemuck::cast_slice(&numbers);
        let [a, c] = [backend.alloc(bytes.len())?, backend.alloc(bytes.len())?];
        backend.copy_htod(a, bytes)?;
        let matrix = |ptr| Matrix::new(ptr, DType::F32, SIZE);
        backend.matmul(&MatmulDesc::new(SIZE, SIZE, SIZE, matrix(a), matrix(a), matrix(c)))?;
        let mut result = vec![0; bytes.len()];
        backend.copy_dtoh(&mut result, c)?;
        backend.free(a)?;
        backend.free(c)?;
        Ok(result)
    };
    if run()? == run()? { Ok(()) } else { Err("two runs differ".into()) }
}
