//! The pages, by a package of their own: its dependencies take longer to build than the other tasks together.

use xshell::{Shell, cmd};

use crate::{modules, programs};

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// What the task takes; --help tells
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(sh: &Shell, task: &str, args: &Args) -> anyhow::Result<()> {
    modules::compile(sh)?;
    let arguments = &args.arguments;
    if ["test-web", "test-dawn"].contains(&task) {
        // What the pages rank and write is compared with what the commands do, and random models with what they
        // should say. After the suites, all are there.
        let program = programs::build(sh, &["xtask-web", "minilm", "llama"], "dev")?.join("xtask-web");
        if task == "test-web" {
            programs::build_example(sh, "random_models")?;
        }
        cmd!(sh, "{program} {task} {arguments...}").run()?;
        return Ok(());
    }
    cmd!(sh, "cargo run --quiet --package xtask-web -- {task} {arguments...}").run()?;
    Ok(())
}
