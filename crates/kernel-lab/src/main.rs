//! The command `kernel-lab`: WGSL kernels of one's own, validated, run and profiled.
//!
//! It ends with 0 if all is well, 1 if the kernel is refused or its launch passes a limit, 2 if the command line, a
//! file or a buffer can't be used, 3 if there is no such device or the device fails, 4 after `--timeout`, and 5 if an
//! output isn't what was expected.

mod args;
mod failure;
mod files;
mod operand;
mod params;
mod report;
mod supervise;
mod work;

use std::io::{self, Write as _};
use std::process::ExitCode;

use backend_api::{ComputeBackend as _, DiagnosticKind, Registry};
use backend_webgpu::{KernelDesc, KernelLimits, WebGpuBackend, validate_kernel};
use clap::Parser as _;
use serde_json::{Value, json};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use args::{Args, Command, Source};
use failure::Failure;

/// What a kernel may be refused for that a device would take.
const WITHOUT_A_DEVICE: &str =
    "checked against WebGPU's default limits and no features; with --device, against a device's";

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return wrong_command_line(&error),
    };
    let logged = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    tracing_subscriber::registry().with(logged).with(log_filter()).init();
    // What may hang, or crash in a driver, does so in a process of its own.
    if !supervise::is_child() {
        return supervise::parent(args.timeout(), args.json());
    }
    supervise::watch();
    let json = args.json();
    match run(&args) {
        Ok(output) => print(&output.text, &output.json, json)
            .map_or_else(|failure| failure.report(json), |()| output.code),
        Err(failure) => failure.report(json),
    }
}

/// Tells what clap says, as JSON if that is asked for; the exit code.
fn wrong_command_line(error: &clap::Error) -> ExitCode {
    let as_json = std::env::args_os().any(|argument| argument == "--json");
    if !error.use_stderr() || !as_json {
        error.exit();
    }
    let text = error.to_string();
    // Behind it come the usage and where to find more.
    let reason = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let reason: Vec<&str> = reason.split_whitespace().collect();
    Failure::usage(reason.join(" ")).report(as_json)
}

/// What a command prints.
#[derive(Debug)]
struct Output {
    text: String,
    json: Value,
    code: ExitCode,
}

fn run(args: &Args) -> Result<Output, Failure> {
    match &args.command {
        Command::Specs { list: true, .. } => {
            let mut registry = Registry::new();
            backend_webgpu::register(&mut registry);
            let devices = registry.available();
            let json =
                json!({ "ok": true, "devices": devices.iter().map(report::device_json).collect::<Vec<_>>() });
            Ok(Output { text: report::devices(&devices), json, code: ExitCode::SUCCESS })
        }
        Command::Specs { device, .. } => {
            let specs = open(device)?.device_specs()?;
            let mut json = serde_json::to_value(&specs).map_err(|error| Failure::Usage(error.into()))?;
            json["ok"] = json!(true);
            Ok(Output { text: report::specs(&specs), json, code: ExitCode::SUCCESS })
        }
        Command::Validate { source, device, .. } => {
            let desc = source.desc()?;
            let checked = match device {
                Some(device) => {
                    let backend = open(device)?;
                    let kernel = backend.kernel(&desc).map_err(|error| Failure::of_kernel(error, &desc))?;
                    kernel.report().clone()
                }
                None => validate_kernel(&desc, &KernelLimits::default()).map_err(|mut said| {
                    if matches!(said.kind, DiagnosticKind::Limit | DiagnosticKind::Unsupported) {
                        said.notes.push(WITHOUT_A_DEVICE.to_owned());
                    }
                    Failure::Refused { said: Box::new(said), desc: Box::new(desc.clone()) }
                })?,
            };
            let text = report::kernel(&checked);
            failure::show_warnings(&checked.warnings, &desc);
            let mut json = report::kernel_json(&checked);
            json["ok"] = json!(true);
            Ok(Output { text, json, code: ExitCode::SUCCESS })
        }
        Command::Run { launch, show, save } => work::run(launch, *show, save),
        Command::Profile { launch, options, .. } => work::profile(launch, options),
    }
}

/// The device that a selector such as `webgpu:vulkan`, `vulkan`, `0` or nothing names.
fn open(selector: &str) -> Result<WebGpuBackend, Failure> {
    let name =
        selector.strip_prefix("webgpu").map_or(selector, |rest| rest.strip_prefix(':').unwrap_or(rest));
    let mut backend = WebGpuBackend::select(name);
    backend.init()?;
    Ok(backend)
}

impl Source {
    /// The kernel that is named.
    fn desc(&self) -> Result<KernelDesc, Failure> {
        let wgsl = files::read_text(&self.file).map_err(Failure::usage)?;
        let name = self.file.display().to_string();
        let mut desc = KernelDesc::new(name, wgsl);
        desc.entry_point.clone_from(&self.entry);
        desc.constants = self.constants.iter().cloned().collect();
        desc.allow_non_uniform = self.allow_non_uniform;
        Ok(desc)
    }
}

fn print(text: &str, json: &Value, as_json: bool) -> Result<(), Failure> {
    let output = if as_json { format!("{json:#}\n") } else { text.to_owned() };
    let mut stdout = io::stdout();
    let printed = stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush());
    printed.map_err(|error| Failure::usage(format!("can't print: {error}")))
}

/// What RUST_LOG asks for, or nothing: what is wrong is told once.
fn log_filter() -> Targets {
    let asked = std::env::var("RUST_LOG").ok().and_then(|directives| directives.parse().ok());
    asked.unwrap_or_else(|| Targets::new().with_default(LevelFilter::OFF))
}
