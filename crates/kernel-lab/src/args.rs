//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Parser, Subcommand};

use crate::operand::Operand;

/// Validates, runs and profiles WGSL kernels on any WebGPU device.
///
/// Ends with 0 if all is well, 1 if the kernel is refused or its launch passes a limit, 2 if the command line, a
/// file or a buffer can't be used, 3 if there is no such device or the device fails, 4 after --timeout, 5 if an
/// output isn't what --expect says. RUST_LOG sets what is logged to the standard error.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Print what a device is and has
    Specs {
        /// The device: an index, a part of a name, an interface such as vulkan, or nothing for the best
        #[arg(long, visible_alias = "backend", default_value = "", value_name = "SELECTOR")]
        device: String,
        /// Print the devices that there are, with their indices
        #[arg(long)]
        list: bool,
        #[command(flatten)]
        limit: TimeLimit,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Check a kernel and print its bindings, parameters and workgroup
    Validate {
        #[command(flatten)]
        source: Source,
        /// Compile it for this device; without one, WebGPU's default limits and no features hold
        #[arg(long, visible_alias = "backend", value_name = "SELECTOR")]
        device: Option<String>,
        #[command(flatten)]
        limit: TimeLimit,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Launch a kernel once and print what it has written
    Run {
        #[command(flatten)]
        launch: Launch,
        /// How many elements of each output to print
        #[arg(long, default_value_t = 8, value_name = "COUNT")]
        show: usize,
        /// Write what a buffer holds after the launch, as raw numbers; INDEX counts --bind from 0; may be repeated
        #[arg(long, value_name = "INDEX=FILE", value_parser = indexed)]
        save: Vec<(usize, PathBuf)>,
    },
    /// Measure how long a kernel takes
    Profile {
        #[command(flatten)]
        launch: Launch,
        #[command(flatten)]
        options: Options,
    },
}

/// A kernel.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Source {
    /// A WGSL file, - for the standard input
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// The entry point, where there are several
    #[arg(long, value_name = "NAME")]
    pub(crate) entry: Option<String>,
    /// A pipeline-overridable constant; may be repeated
    #[arg(long = "const", value_name = "NAME=VALUE", value_parser = constant)]
    pub(crate) constants: Vec<(String, f64)>,
    /// Warn of barriers that may not be reached by every invocation, rather than refuse them
    #[arg(long)]
    pub(crate) allow_non_uniform: bool,
}

/// A launch of a kernel.
#[derive(Clone, Debug, clap::Args)]
#[command(group = ArgGroup::new("size").required(true).args(["grid", "threads"]))]
pub(crate) struct Launch {
    #[command(flatten)]
    pub(crate) source: Source,
    /// A buffer, in the order of the kernel's bindings: TYPE:SHAPE:CONTENT, :out behind it for an output; TYPE is
    /// f32, f16, i32 or u32, CONTENT is zeros, ones, iota, random, normal, a number or @FILE. Such as
    /// f32:1024x1024:random
    #[arg(long = "bind", value_name = "SPEC")]
    pub(crate) bindings: Vec<Operand>,
    /// The parameters: by name such as n=1024,alpha=0.5, numbers of a vector separated by semicolons; or in order
    /// such as u32:1024,f32:0.5, gaps between the fields included; or @FILE
    #[arg(long, default_value = "", value_name = "LIST", allow_hyphen_values = true)]
    pub(crate) params: String,
    /// Workgroups: X, X,Y or X,Y,Z
    #[arg(long, value_name = "X,Y,Z", value_parser = grid)]
    pub(crate) grid: Option<[u32; 3]>,
    /// Invocations, from which the workgroups are computed: X, X,Y or X,Y,Z
    #[arg(long, value_name = "X,Y,Z", value_parser = grid)]
    pub(crate) threads: Option<[u32; 3]>,
    /// What a buffer holds after one launch, as raw numbers, all of them; INDEX counts --bind from 0; may be
    /// repeated
    #[arg(long, value_name = "INDEX=FILE", value_parser = indexed)]
    pub(crate) expect: Vec<(usize, PathBuf)>,
    /// The largest absolute error of --expect
    #[arg(long, default_value_t = 1e-5, value_parser = bound, allow_negative_numbers = true)]
    pub(crate) atol: f64,
    /// The largest relative error of --expect
    #[arg(long, default_value_t = 1e-3, value_parser = bound, allow_negative_numbers = true)]
    pub(crate) rtol: f64,
    /// Seed of random contents
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// The device: an index, a part of a name, an interface such as vulkan, or nothing for the best
    #[arg(long, visible_alias = "backend", default_value = "", value_name = "SELECTOR")]
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) limit: TimeLimit,
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

/// How long a command takes at most.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct TimeLimit {
    /// End after so many seconds, whatever the device does or the standard input waits for
    #[arg(long, default_value = "60", value_parser = seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) timeout: Duration,
}

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Seconds that the kernel runs before it is measured
    #[arg(long, default_value = "0.3", value_parser = seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) warm_up: Duration,
    /// Samples, at most
    #[arg(long, default_value_t = 50)]
    pub(crate) samples: usize,
    /// Seconds of measuring, at most
    #[arg(long, default_value = "5", value_parser = seconds, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) max_time: Duration,
    /// Bytes that a launch reads and writes, for GB/s
    #[arg(long, value_parser = count, allow_negative_numbers = true)]
    pub(crate) bytes: Option<f64>,
    /// Floating-point operations of a launch, for GFLOP/s
    #[arg(long, value_parser = count, allow_negative_numbers = true)]
    pub(crate) flops: Option<f64>,
}

impl Args {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            Command::Specs { json, .. } | Command::Validate { json, .. } => *json,
            Command::Run { launch, .. } | Command::Profile { launch, .. } => launch.json,
        }
    }

    /// How long the command may take: a driver may hang or crash, and the text of a kernel may come from a program that
    /// never ends it.
    pub(crate) fn timeout(&self) -> Duration {
        let limit = match &self.command {
            Command::Specs { limit, .. } | Command::Validate { limit, .. } => limit,
            Command::Run { launch, .. } | Command::Profile { launch, .. } => &launch.limit,
        };
        limit.timeout
    }
}

fn constant(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let value = match value {
        "true" => 1.0,
        "false" => 0.0,
        number => number.parse().map_err(|_| format!("{number:?} is no number"))?,
    };
    Ok((name.to_owned(), value))
}

fn grid(text: &str) -> Result<[u32; 3], String> {
    let mut sizes = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        return Err("expected at most three numbers".to_owned());
    }
    for (size, part) in sizes.iter_mut().zip(parts) {
        *size = part.trim().parse().map_err(|_| format!("{part:?} is no count"))?;
        if *size == 0 {
            return Err("0 launches nothing".to_owned());
        }
    }
    Ok(sizes)
}

fn indexed(text: &str) -> Result<(usize, PathBuf), String> {
    let (index, path) = text.split_once('=').ok_or("expected INDEX=FILE")?;
    Ok((index.parse().map_err(|_| format!("{index:?} is no index"))?, path.into()))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "no time of 0 seconds or more".to_owned())
}

fn count(text: &str) -> Result<f64, String> {
    let count: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if count >= 0.0 && count.is_finite() { Ok(count) } else { Err("no count of 0 or more".to_owned()) }
}

fn bound(text: &str) -> Result<f64, String> {
    let bound: f64 = text.parse().map_err(|_| format!("{text:?} is no number"))?;
    if bound >= 0.0 { Ok(bound) } else { Err("no bound of 0 or more".to_owned()) }
}
