//! Every suite on every adapter.

use xshell::{Shell, cmd};

use crate::{drivers, model, programs, runner};

/// Examples that run without arguments and check what they compute.
const EXAMPLES: [&str; 6] = ["own_backend", "gemm", "attention", "capture", "custom_kernel", "shared_device"];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Don't install drivers: fail with the command that would
    #[arg(long)]
    no_install: bool,
    /// Fail unless all three software adapters are there: lavapipe, llvmpipe and SwiftShader
    #[arg(long)]
    all_adapters: bool,
    /// Add the lavapipe of Debian's backports, unpacked into target/mesa-backports
    #[arg(long)]
    newer_mesa: bool,
    /// Arguments for `cargo test`, which then runs instead of everything
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    drivers::prepare(sh, !args.no_install, args.all_adapters)?;
    if args.newer_mesa {
        drivers::add_newer_lavapipe(sh)?;
    }
    model::ensure_present(sh)?;
    let arguments = &args.arguments;
    if !arguments.is_empty() {
        cmd!(sh, "cargo test {arguments...}").run()?;
        return Ok(());
    }
    let tested = runner::run(sh);
    cmd!(sh, "cargo test --workspace --doc").run()?;
    for example in EXAMPLES {
        let program = programs::build_example(sh, example)?;
        cmd!(sh, "{program}").run()?;
    }
    tested
}
