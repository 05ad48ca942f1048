//! Random work of every kind, for as long as there is time.

use std::path::{Path, PathBuf};

use xshell::{Shell, cmd};

use crate::drivers;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The time for all of it; shared among the parts and the backends. Without it, what CI runs
    #[arg(long)]
    minutes: Option<f64>,
    /// Another seed gives other cases
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Some parts: arguments, programs, threads, faults, fuzz (configurations of minilm too), wgsl, and with --minutes soak
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Some backends, such as cpu or webgpu:0
    #[arg(long, value_delimiter = ',')]
    backend: Vec<String>,
    /// One case, by the number that a failure tells, of the part that --only names
    #[arg(long)]
    case: Option<u64>,
    /// A program to run, as a failure prints it; with --only programs, threads or faults
    #[arg(long, conflicts_with = "case")]
    program: Option<PathBuf>,
}

pub(crate) fn run(sh: &Shell, args: &Args, from: &Path) -> anyhow::Result<()> {
    drivers::prepare(sh, false, false)?;
    let program = args.program.as_ref().map(|path| from.join(path).display().to_string());
    let settings = [
        ("CAMPAIGN_MINUTES", args.minutes.map(|minutes| minutes.to_string())),
        ("CAMPAIGN_SEED", Some(args.seed.to_string())),
        ("CAMPAIGN_ONLY", Some(args.only.join(","))),
        ("CAMPAIGN_CASE", args.case.map(|case| case.to_string())),
        ("CAMPAIGN_PROGRAM", program),
        ("TEST_BACKENDS", (!args.backend.is_empty()).then(|| args.backend.join(","))),
    ];
    for (variable, value) in settings {
        if let Some(value) = value {
            sh.set_var(variable, value);
        }
    }
    // glibc's arenas, of which programs of many short threads get more and more, look like memory that nobody gives back.
    let _one_arena = sh.push_env("MALLOC_ARENA_MAX", "1");
    cmd!(sh, "cargo test --package suites --test campaign").run()?;
    if args.only.is_empty() || args.only.iter().any(|part| part == "fuzz") {
        // What the model's files may hold; from this seed.
        cmd!(sh, "cargo test --package minilm --test mutated").run()?;
    }
    Ok(())
}
