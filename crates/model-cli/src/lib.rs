//! What the commands `llama` and `minilm` share: backends by name, logs, exit codes and progress bars.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::{ExitCode, Termination};

use anyhow::Context;
use backend_api::{BackendError, DeviceInfo, OVERRIDE_VARIABLE, Registry, Selection, override_name};
use indicatif::{ProgressBar, ProgressStyle};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Runs a command with logs on the standard error, which its error goes to as well, behind its name. An output that nobody reads
/// any more, as behind `| head`, is no error: the command ends without a word. What `run` returns says the exit code.
pub fn main<T: Termination>(name: &str, run: impl FnOnce() -> anyhow::Result<T>) -> ExitCode {
    match init_logs().and_then(|()| run()) {
        Ok(done) => done.report(),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            note(format_args!("{name}: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.root_cause().downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Writes a line to the standard error. Whether anybody reads it doesn't matter to what the command does.
pub fn note(line: fmt::Arguments<'_>) {
    _ = writeln!(io::stderr(), "{line}");
}

fn init_logs() -> anyhow::Result<()> {
    let logged =
        tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    tracing_subscriber::registry().with(logged).with(log_filter()?).init();
    Ok(())
}

/// What RUST_LOG asks for, or errors and the warnings of our own backends.
fn log_filter() -> anyhow::Result<Targets> {
    match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => {
            let asked = directives.parse().with_context(|| format!("can't read RUST_LOG={directives}"))?;
            Ok(with_quiet_compiler(asked))
        }
        _ => Ok(Targets::new()
            .with_default(LevelFilter::ERROR)
            .with_target("backend_webgpu", LevelFilter::WARN)),
    }
}

/// Shader translation (naga) logs megabytes for a model's kernels: unless it is named, only its warnings are logged.
fn with_quiet_compiler(asked: Targets) -> Targets {
    let is_named = asked.iter().any(|(target, _)| target.starts_with("naga"));
    match asked.default_level() {
        // Of two levels, the smaller one logs less.
        Some(level) if !is_named => asked.with_target("naga", level.min(LevelFilter::WARN)),
        _ => asked,
    }
}

/// Every backend that there is.
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_webgpu::register(&mut registry);
    #[cfg(feature = "verify")]
    backend_verify::register(&mut registry);
    registry
}

/// The backend of a name.
///
/// # Errors
/// As [`Registry::select`], with the name, and with the devices that there are if it is none of them.
pub fn select(backend: &str) -> anyhow::Result<Selection> {
    let registry = registry();
    let error = match registry.select(backend) {
        Ok(selection) => return Ok(selection),
        Err(error) => error,
    };
    let named = override_name().filter(|name| backend == "auto" && name != "auto");
    let (name, asked) = match &named {
        Some(name) => (name.as_str(), format!(" that {OVERRIDE_VARIABLE} names")),
        None => (backend, String::new()),
    };
    let error = match &error {
        BackendError::NoAdapter { tried } => {
            // The registry says first that the variable was asked.
            let tried = tried.get(usize::from(named.is_some())..).unwrap_or_default();
            match no_such_device(name, tried, &registry.available()) {
                Some(text) => anyhow::Error::msg(text),
                None => error.into(),
            }
        }
        _ => error.into(),
    };
    Err(error.context(format!("can't open the backend {name:?}{asked}")))
}

/// What is wrong with a name that no device has; `None` for one that has been tried, and didn't open.
fn no_such_device(backend: &str, tried: &[String], devices: &[DeviceInfo]) -> Option<String> {
    let (name, others) = tried.split_first()?;
    if !name.eq_ignore_ascii_case(backend) {
        return None;
    }
    let is_listed =
        |text: &&String| devices.iter().any(|device| text.starts_with(&format!("{} = ", device.selector)));
    let listed =
        devices.iter().map(|DeviceInfo { selector, name, api, .. }| format!("{selector} = {name} ({api})"));
    // The backend says why others can't be used.
    let listed: Vec<String> = listed.chain(others.iter().filter(|text| !is_listed(text)).cloned()).collect();
    Some(format!("there is no such device; there are: {}", listed.join(", ")))
}

/// A bar on the standard error, hidden where that isn't a terminal. `counts` are in the style of
/// [`ProgressStyle::with_template`].
#[must_use]
pub fn progress_bar(what: &'static str, counts: &str) -> ProgressBar {
    let bar = ProgressBar::new(0).with_message(what);
    match ProgressStyle::with_template(&format!("{{msg:>10}} {{wide_bar}} {counts}")) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Loads a model with a bar, which hears of bytes and how many there are.
///
/// # Errors
/// As `load`.
pub fn with_loading_bar<T, E>(
    load: impl FnOnce(&mut dyn FnMut(usize, usize)) -> Result<T, E>,
) -> Result<T, E> {
    let bar = progress_bar("loading", "{bytes}/{total_bytes}");
    let loaded = load(&mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    Ok(loaded)
}

#[cfg(test)]
mod tests {
    use backend_api::DeviceKind;

    use super::*;

    #[test]
    fn closed_outputs_are_no_errors() {
        let error = |kind| anyhow::Error::from(io::Error::from(kind));
        assert!(is_broken_pipe(&error(io::ErrorKind::BrokenPipe).context("can't print")));
        assert!(!is_broken_pipe(&error(io::ErrorKind::StorageFull)));
        assert!(!is_broken_pipe(&anyhow::Error::msg("Broken pipe")));
    }

    #[test]
    fn the_shader_translator_logs_warnings_unless_it_is_named() {
        let level = |directives: &str, target: &str| {
            let targets = with_quiet_compiler(directives.parse().unwrap());
            let levels = [LevelFilter::TRACE, LevelFilter::DEBUG, LevelFilter::WARN, LevelFilter::ERROR];
            let enabled = |level: &LevelFilter| targets.would_enable(target, &level.into_level().unwrap());
            levels.into_iter().find(enabled).unwrap_or(LevelFilter::OFF)
        };
        assert_eq!(level("debug", "naga::front"), LevelFilter::WARN);
        assert_eq!(level("debug", "wgpu_core::device"), LevelFilter::DEBUG);
        assert_eq!(level("trace", "backend_webgpu"), LevelFilter::TRACE);
        assert_eq!(level("error", "naga::front"), LevelFilter::ERROR);
        assert_eq!(level("off", "naga::front"), LevelFilter::OFF);
        assert_eq!(level("debug,naga=debug", "naga::front"), LevelFilter::DEBUG);
        assert_eq!(level("naga::front=trace", "naga::front"), LevelFilter::TRACE);
        assert_eq!(level("wgpu_core=debug", "naga::front"), LevelFilter::OFF);
    }

    #[test]
    fn names_of_no_device_are_told_with_those_that_there_are() {
        let device = |selector: &str, name: &str, api: &str| DeviceInfo {
            selector: selector.to_owned(),
            name: name.to_owned(),
            api: api.to_owned(),
            driver: String::new(),
            kind: DeviceKind::Cpu,
        };
        let devices = [device("cpu", "host CPU", "host"), device("webgpu:0", "llvmpipe", "Vulkan")];
        let tried =
            ["webgpu:7", "old GPU: no compute shaders", "webgpu:0 = llvmpipe (Vulkan)"].map(str::to_owned);
        assert_eq!(
            no_such_device("webgpu:7", &tried, &devices).unwrap(),
            "there is no such device; there are: cpu = host CPU (host), webgpu:0 = llvmpipe (Vulkan), old GPU: no compute shaders"
        );
        let failed = ["webgpu:0 = llvmpipe (Vulkan): no memory".to_owned()];
        assert_eq!(no_such_device("webgpu:0", &failed, &devices), None);
    }
}
