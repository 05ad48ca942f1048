//! Every suite on every adapter.

use xshell::{Shell, cmd};

use crate::{drivers, model, programs};

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
    /// Arguments for `cargo test` instead of `--workspace --no-fail-fast`
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    drivers::prepare(sh, !args.no_install, args.all_adapters)?;
    if args.newer_mesa {
        drivers::add_newer_lavapipe(sh)?;
    }
    model::ensure_present(sh)?;
    let everything = ["--workspace", "--no-fail-fast"].map(str::to_owned);
    let arguments = match args.arguments.as_slice() {
        [] => &everything[..],
        chosen => chosen,
    };
    cmd!(sh, "cargo test {arguments...}").run()?;
    if args.arguments.is_empty() {
        for example in EXAMPLES {
            let program = programs::build_example(sh, example)?;
            cmd!(sh, "{program}").run()?;
        }
    }
    Ok(())
}
