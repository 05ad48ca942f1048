//! What the commands `llama` and `minilm` share: backends by name, logs, exit codes and progress bars.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use backend_api::{Registry, Selection};
use indicatif::{ProgressBar, ProgressStyle};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Runs a command with logs on the standard error, which its error goes to as well, behind its name.
pub fn main(name: &str, run: impl FnOnce() -> anyhow::Result<()>) -> ExitCode {
    match init_logs().and_then(|()| run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(format_args!("{name}: {error:#}"));
            ExitCode::FAILURE
        }
    }
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
            directives.parse().with_context(|| format!("can't read RUST_LOG={directives}"))
        }
        _ => Ok(Targets::new()
            .with_default(LevelFilter::ERROR)
            .with_target("backend_webgpu", LevelFilter::WARN)),
    }
}

/// Every backend that there is.
#[must_use]
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_webgpu::register(&mut registry);
    backend_verify::register(&mut registry);
    registry
}

/// The backend of a name.
///
/// # Errors
/// As [`Registry::select`], with the name.
pub fn select(backend: &str) -> anyhow::Result<Selection> {
    registry().select(backend).with_context(|| format!("can't open the backend {backend:?}"))
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
