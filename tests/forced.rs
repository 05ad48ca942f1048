//! What the suites share that force each kernel of a family in turn: a test for each kernel on each adapter.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;

use backend_api::ComputeBackend;
use backend_webgpu::WebGpuBackend;
use backend_webgpu::variants::KernelSource;
use conformance::Case;
use libtest_mimic::{Arguments, Failed, Trial};
use suites::{Sample, Shard};

/// How many failing cases are listed.
#[allow(dead_code, reason = "not every suite that shares this file forces kernels")]
const LISTED: usize = 10;

/// An adapter under test. A kernel is forced for a whole backend, so one test at a time has it.
pub(crate) struct Device {
    name: String,
    selector: String,
    pub(crate) backend: WebGpuBackend,
    sample: Sample,
    kernels: Sample,
    turn: Mutex<()>,
}

impl Device {
    /// What `WebGpuBackend::select` opens it by.
    #[allow(dead_code, reason = "not every suite that shares this file opens the adapter again")]
    pub(crate) fn selector(&self) -> &str {
        &self.selector
    }

    /// What runs on the adapter.
    #[allow(dead_code, reason = "not every suite that shares this file takes a sample of cases")]
    pub(crate) const fn sample(&self) -> Sample {
        self.sample
    }

    /// Which cases each forced kernel runs, where a third of them is enough on software adapters.
    #[allow(dead_code, reason = "not every suite that shares this file takes a sample of a kernel's cases")]
    pub(crate) const fn sample_of_a_kernel(&self) -> Sample {
        self.kernels.of_a_kernel()
    }

    /// A test that has the backend to itself.
    pub(crate) fn trial(
        self: &Arc<Self>,
        name: &str,
        test: impl FnOnce(&WebGpuBackend) -> Result<(), Failed> + Send + 'static,
    ) -> Trial {
        let device = Arc::clone(self);
        Trial::test(format!("{}/{name}", self.name), move || {
            let _turn = device.turn.lock().unwrap_or_else(PoisonError::into_inner);
            test(&device.backend)
        })
    }
}

/// Runs the tests that `trials` makes of each adapter, those of different adapters at the same time; no
/// adapter is a failure.
pub(crate) fn run(trials: fn(&Arc<Device>) -> Vec<Trial>) -> ExitCode {
    let mut by_device = Vec::new();
    for found in suites::adapters() {
        let device = match found {
            Ok(device) => device,
            Err((name, why)) => {
                by_device.push(vec![Trial::test(name, move || Err(why.into()))]);
                continue;
            }
        };
        let selector = device.selector.strip_prefix("webgpu:").unwrap_or_default().to_owned();
        let name = format!("{} {}", device.selector, device.name);
        let mut backend = WebGpuBackend::select(&selector);
        let opened = backend.init().map_err(|error| error.to_string()).and_then(|()| {
            // Of cases, and of kernels.
            Ok((Sample::of(&device)?, Sample::of_kernels(&device)?))
        });
        by_device.push(match opened {
            Ok((sample, kernels)) => {
                let turn = Mutex::default();
                trials(&Arc::new(Device { name, selector, backend, sample, kernels, turn }))
            }
            Err(error) => vec![Trial::test(name, move || Err(error.into()))],
        });
    }
    let mut arguments = Arguments::from_args();
    let threads = available_parallelism().map_or(1, usize::from).min(by_device.len().max(1));
    arguments.test_threads.get_or_insert(threads);
    suites::run(&arguments, in_turns(by_device)).exit_code()
}

/// The first of each list, then the second of each, and so on.
fn in_turns<T>(lists: Vec<Vec<T>>) -> Vec<T> {
    let mut lists: Vec<_> = lists.into_iter().map(Vec::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(lists.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}

/// Finds the WGSL file of a kernel by the name that forces it.
pub(crate) type SourceOf = fn(&str) -> Option<&'static KernelSource>;

/// Whether a kernel of this name runs on tensor cores.
#[allow(dead_code, reason = "not every suite that shares this file forces kernels")]
pub(crate) fn needs_tensor_cores(name: &str, source_of: SourceOf) -> bool {
    source_of(name).unwrap_or_else(|| panic!("no kernel is called {name}")).cooperative
}

/// Whether barriers of kernels have the device's scope: on Vulkan, but not where that is a layer on Metal.
#[allow(
    dead_code,
    reason = "not every suite that shares this file has kernels whose workgroups wait for each other"
)]
pub(crate) fn has_device_scope_barriers(backend: &WebGpuBackend) -> bool {
    backend.device_info().is_ok_and(|info| info.api == "Vulkan") && !cfg!(target_vendor = "apple")
}

/// Whether the device has tensor cores.
#[allow(dead_code, reason = "not every suite that shares this file forces kernels")]
pub(crate) fn has_tensor_cores(backend: &WebGpuBackend) -> bool {
    backend.capabilities().is_ok_and(|capabilities| capabilities.cooperative_matrix)
}

/// The kernels that the device can run, or the device's sample of them.
#[allow(dead_code, reason = "not every suite that shares this file forces kernels")]
pub(crate) fn runnable(
    device: &Device,
    names: Vec<String>,
    source_of: SourceOf,
) -> impl Iterator<Item = String> + use<> {
    let (tensor_cores, kernels) = (has_tensor_cores(&device.backend), device.kernels);
    names
        .into_iter()
        .filter(move |name| tensor_cores || !needs_tensor_cores(name, source_of))
        .filter(move |name| kernels.has(name))
}

/// Runs all cases.
#[allow(dead_code, reason = "not every suite that shares this file forces kernels")]
pub(crate) fn check(backend: &WebGpuBackend, cases: &[Case]) -> Result<(), Failed> {
    let shard = Shard::from_environment()?;
    let cases: Vec<&Case> = cases.iter().filter(|case| shard.has(&case.path())).collect();
    let mut failures: Vec<String> =
        cases.iter().filter_map(|case| case.run(backend).err()).map(|failure| failure.to_string()).collect();
    if failures.is_empty() {
        return Ok(());
    }
    let failed = failures.len();
    failures.truncate(LISTED);
    Err(format!("{failed} of {} cases failed:\n{}", cases.len(), failures.join("\n")).into())
}
