//! The pages, by a package of their own: its dependencies take longer to build than the other tasks together.

use xshell::{Shell, cmd};

use crate::programs;

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// What the task takes; --help tells
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(sh: &Shell, task: &str, args: &Args) -> anyhow::Result<()> {
    let arguments = &args.arguments;
    if ["test-web", "test-dawn"].contains(&task) {
        // What the pages rank is compared with what the command ranks. After the suites, both are there.
        let program = programs::build(sh, &["xtask-web", "minilm"], "dev")?.join("xtask-web");
        cmd!(sh, "{program} {task} {arguments...}").run()?;
        return Ok(());
    }
    cmd!(sh, "cargo run --quiet --package xtask-web -- {task} {arguments...}").run()?;
    Ok(())
}
