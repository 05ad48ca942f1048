//! The backend's threads under every order of their steps that shuttle chooses.

use xshell::{Shell, cmd};

/// Where it is built: with other features of wgpu, which the suites' build is not to see.
const TARGET: &str = "target/shuttle";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs of each scenario
    #[arg(long, default_value_t = 60)]
    iterations: u64,
    /// The seed of a scenario's first run; each run has the next one
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Arguments for the tests, such as a part of a scenario's name
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    sh.set_var("INTERLEAVINGS", args.iterations.to_string());
    sh.set_var("INTERLEAVINGS_SEED", args.seed.to_string());
    let package = ["--package=backend-webgpu", "--features=shuttle", "--lib"];
    let filter = match args.arguments.as_slice() {
        [] => &["interleavings::".to_owned()],
        chosen => chosen,
    };
    cmd!(sh, "cargo test --target-dir {TARGET} {package...} -- --nocapture {filter...}").run()?;
    Ok(())
}
