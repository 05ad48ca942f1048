//! What every suite shares: the backends under test.

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use backend_api::{BackendFactory as _, ComputeBackend, DeviceInfo, Registry};
use backend_webgpu::WebGpuFactory;
use libtest_mimic::{Arguments, Conclusion, Trial};

#[cfg(doctest)]
mod documents;
mod filter;
mod sample;
mod variable;

pub use filter::Filter;
pub use sample::{Sample, Shard, every, is_first};
pub use variable::number;

/// The environment variable that restricts the suites: selectors such as `cpu` or `webgpu:0`, or `webgpu` for
/// all of its adapters, separated by commas. `webgpu:mesa 25` is every adapter whose interface, name or
/// driver contains that.
pub const BACKENDS_VARIABLE: &str = "TEST_BACKENDS";

/// Why a suite fails where there is no adapter, and what to do about it.
const NO_ADAPTER: &str = "no WebGPU adapter found; a software driver is enough, on Debian and Ubuntu: \
     apt-get install mesa-vulkan-drivers libvulkan1 (or run without: TEST_BACKENDS=cpu)";

/// A backend to run a suite on, or why there is none.
#[derive(Debug)]
pub struct BackendUnderTest {
    /// The name that a registry opens it by, such as `"webgpu:0"`.
    pub selector: String,
    /// For people, such as
    /// `"webgpu:0 llvmpipe (LLVM 15.0.6, 256 bits) (Vulkan, llvmpipe Mesa 25.0.7 (LLVM 15.0.6))"`.
    pub label: String,
    /// For names of tests, such as `"webgpu:0-llvmpipe-vulkan-mesa-25-0-7"`.
    pub slug: String,
    opened: Result<Box<dyn ComputeBackend>, String>,
}

impl BackendUnderTest {
    /// The open backend.
    ///
    /// # Errors
    /// Why it could not be opened. A suite must fail with this text, not pass over it.
    pub fn backend(&self) -> Result<&dyn ComputeBackend, &str> {
        self.opened.as_deref().map_err(String::as_str)
    }

    fn missing(selector: &str, reason: String) -> Self {
        Self {
            selector: selector.to_owned(),
            label: selector.to_owned(),
            slug: selector.to_owned(),
            opened: Err(reason),
        }
    }

    fn open(registry: &Registry, device: &DeviceInfo) -> Self {
        let DeviceInfo { selector, name, api, driver, .. } = device;
        let (label, slug) = if api == "host" {
            (selector.clone(), selector.clone())
        } else {
            // Two versions of one driver differ in nothing else. What follows in brackets is of its compiler.
            let [name_words, driver_words] = [name, driver].map(|text| words(before_brackets(text)));
            let new_words = driver_words.into_iter().filter(|word| !name_words.contains(word));
            let parts: Vec<String> = name_words.iter().cloned().chain(words(api)).chain(new_words).collect();
            (format!("{selector} {name} ({api}, {driver})"), format!("{selector}-{}", parts.join("-")))
        };
        let opened = registry.create(selector).map_err(|error| error.to_string());
        Self { selector: selector.clone(), label, slug, opened }
    }
}

/// The CPU and every WebGPU adapter, or those that [`BACKENDS_VARIABLE`] names. One that is named but
/// missing, or WebGPU without any adapter, is in the list as an error.
#[must_use]
pub fn backends() -> Vec<BackendUnderTest> {
    let registry = registry();
    let wanted = chosen().unwrap_or_else(|| ["cpu", "webgpu"].map(str::to_owned).into());
    named(&registry.available(), &wanted)
        .into_iter()
        .map(|found| match found {
            Ok(device) => BackendUnderTest::open(&registry, device),
            Err((name, reason)) => BackendUnderTest::missing(name, reason),
        })
        .collect()
}

/// The WebGPU adapters, or those that [`BACKENDS_VARIABLE`] names, for suites that open them by themselves; in place of one that
/// is missing its name and why.
#[must_use]
pub fn adapters() -> Vec<Result<DeviceInfo, (String, String)>> {
    let mut wanted = chosen().unwrap_or_else(|| vec!["webgpu".to_owned()]);
    wanted.retain(|name| name != "cpu");
    named(&WebGpuFactory.devices(), &wanted)
        .into_iter()
        .map(|found| found.cloned().map_err(|(name, reason)| (name.to_owned(), reason)))
        .collect()
}

/// The names in the environment variable.
fn chosen() -> Option<Vec<String>> {
    let text = std::env::var(BACKENDS_VARIABLE).ok()?;
    let names: Vec<String> =
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    Some(names).filter(|names| !names.is_empty())
}

/// The devices that are meant, each once; for a name that means none, the name and why it is an error.
fn named<'a>(
    devices: &'a [DeviceInfo],
    wanted: &'a [String],
) -> Vec<Result<&'a DeviceInfo, (&'a str, String)>> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for name in wanted {
        let mut meant = devices.iter().filter(|device| is_named(device, name)).peekable();
        if meant.peek().is_none() {
            let reason = match name.as_str() {
                "webgpu" => NO_ADAPTER.to_owned(),
                _ => format!("{BACKENDS_VARIABLE} names {name:?}, which is none of {}", selectors(devices)),
            };
            found.push(Err((name.as_str(), reason)));
        }
        found.extend(meant.filter(|device| seen.insert(&device.selector)).map(Ok));
    }
    found
}

/// What is wrong with what a person has set, and whether there is something to run.
///
/// # Errors
/// Why a suite must not pass.
fn check(trials: &[Trial]) -> Result<(), String> {
    every(1)?;
    Shard::from_environment()?;
    match chosen() {
        // An adapter that isn't there has a trial, which fails.
        Some(names) if trials.is_empty() && names.iter().all(|name| name == "cpu") => {
            println!("{BACKENDS_VARIABLE} names no adapter, and this suite has nothing for the CPU");
            Ok(())
        }
        _ if trials.is_empty() => Err("there is nothing to run".to_owned()),
        _ => Ok(()),
    }
}

/// How long the threads of trials have for ending. libglvnd frees what it has of a thread that has used OpenGL when the thread
/// ends, and what it has of all threads when the process exits; where both happen at once, memory is freed twice.
const ENDING: Duration = Duration::from_millis(100);

/// Runs trials in several threads, which end before a `main` that returns then. What is wrong with the environment's variables
/// ends the process at once: a trial that fails for it could be left out by its name.
pub fn run(arguments: &Arguments, trials: Vec<Trial>) -> Conclusion {
    if let Err(why) = check(&trials) {
        println!("{why}");
        std::process::exit(1);
    }
    let conclusion = libtest_mimic::run(arguments, trials);
    std::thread::sleep(ENDING);
    conclusion
}

/// The `main` of a suite whose trials run one at a time, on every backend.
#[must_use]
pub fn run_one_at_a_time(trials: impl Fn(Arc<BackendUnderTest>) -> Vec<Trial>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let trials = backends().into_iter().flat_map(|tested| trials(Arc::new(tested))).collect();
    run(&arguments, trials).exit_code()
}

/// A registry of the backends of this workspace.
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_webgpu::register(&mut registry);
    registry
}

/// Whether a selector, or a part of it, means the device.
fn is_named(device: &DeviceInfo, name: &str) -> bool {
    let (base, index) = device.selector.split_once(':').unwrap_or((&device.selector, ""));
    match name.split_once(':') {
        None => base == name,
        Some((backend, which)) if which.parse::<usize>().is_ok() => base == backend && index == which,
        Some((backend, text)) => {
            let text = text.to_lowercase();
            let parts = [&device.api, &device.name, &device.driver];
            base == backend && parts.iter().any(|part| part.to_lowercase().contains(&text))
        }
    }
}

fn selectors(devices: &[DeviceInfo]) -> String {
    let selectors: Vec<&str> = devices.iter().map(|device| device.selector.as_str()).collect();
    selectors.join(", ")
}

fn before_brackets(text: &str) -> &str {
    text.split('(').next().unwrap_or(text)
}

/// Lower-case words of letters and digits.
fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_ascii_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use backend_api::DeviceKind;

    use super::*;

    fn lavapipe(index: usize, mesa: &str) -> DeviceInfo {
        DeviceInfo {
            selector: format!("webgpu:{index}"),
            name: "llvmpipe (LLVM 15.0.6, 256 bits)".to_owned(),
            api: "Vulkan".to_owned(),
            driver: format!("llvmpipe Mesa {mesa} (LLVM 15.0.6)"),
            kind: DeviceKind::SoftwareAdapter,
        }
    }

    #[test]
    fn versions_of_a_driver_are_told_apart() {
        let [old, new] = [lavapipe(0, "22.3.6"), lavapipe(1, "25.0.7-2")];
        let named = |name| [&old, &new].map(|device| is_named(device, name));
        assert_eq!(named("webgpu"), [true, true]);
        assert_eq!(named("webgpu:vulkan"), [true, true]);
        assert_eq!(named("webgpu:Mesa 25"), [false, true]);
        assert_eq!(named("webgpu:0"), [true, false]);
        assert_eq!(named("webgpu:25"), [false, false]);
        assert_eq!(named("cpu:vulkan"), [false, false]);
        let open = |device| BackendUnderTest::open(&Registry::new(), device).slug;
        assert_eq!(open(&old), "webgpu:0-llvmpipe-vulkan-mesa-22-3-6");
        assert_eq!(open(&new), "webgpu:1-llvmpipe-vulkan-mesa-25-0-7-2");
    }
}
