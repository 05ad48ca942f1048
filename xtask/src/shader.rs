//! The texts of kernels, by a program of the suites: chores should not have to compile wgpu.

use xshell::{Shell, cmd};

use crate::programs;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A kernel such as norm/softmax, or a part of its name; all are listed without
    kernel: Option<String>,
    /// A variant's label, or a part that no other has; all are listed without
    variant: Vec<String>,
    /// The text for a software adapter without immediates, whose loops aren't unrolled, in place of a GPU's
    #[arg(long, requires = "kernel")]
    software: bool,
    /// A hash of every variant's two texts, which names, comments, formatting and the order of declarations don't change
    #[arg(long, conflicts_with_all = ["kernel", "software"])]
    hashes: bool,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    let program = programs::build_example(sh, "shader")?;
    let options = [("--software", args.software), ("--hashes", args.hashes)];
    let options = options.iter().filter_map(|&(option, given)| given.then_some(option));
    let arguments: Vec<&str> =
        options.chain(args.kernel.iter().chain(&args.variant).map(String::as_str)).collect();
    cmd!(sh, "{program} {arguments...}").quiet().run()?;
    Ok(())
}
