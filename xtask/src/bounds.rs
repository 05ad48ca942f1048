//! The suites that run kernels, with every access compared with its operand.

use xshell::{Shell, cmd};

use crate::drivers;

/// The suites that between them run every kernel.
const SUITES: [&str; 7] = [
    "conformance",
    "matmul_kernels",
    "quant_kernels",
    "appended_products",
    "fused_launches",
    "attention_kernels",
    "conv_kernels",
];

/// What a quick run restricts the conformance suite to: a case's path contains it.
const QUICK: &str = "cumsum";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only the tests of the counting itself, and a few cases
    #[arg(long)]
    quick: bool,
    /// Don't install drivers: fail with the command that would
    #[arg(long)]
    no_install: bool,
    /// Arguments for `cargo test` instead of the suites, such as `--test conformance -- gemm`
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    drivers::prepare(sh, !args.no_install, false)?;
    // The CPU has no kernels.
    if sh.var("TEST_BACKENDS").is_err() {
        sh.set_var("TEST_BACKENDS", "webgpu");
    }
    // Of the whole workspace, so that its dependencies aren't built with other features again.
    let counting = ["--workspace", "--features", "suites/count-out-of-bounds", "--no-fail-fast"];
    if args.arguments.is_empty() {
        cmd!(sh, "cargo test {counting...} --lib -- out_of_bounds").run()?;
    }
    let suites: Vec<String> = match args.arguments.as_slice() {
        [] if args.quick => {
            sh.set_var("CASE", QUICK);
            vec!["--test=conformance".to_owned()]
        }
        [] => SUITES.map(|suite| format!("--test={suite}")).into(),
        chosen => chosen.to_vec(),
    };
    cmd!(sh, "cargo test {counting...} {suites...}").run()?;
    Ok(())
}
