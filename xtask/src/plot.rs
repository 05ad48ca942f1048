//! The plots and tables of the documents, by a program of its own: chores should not have to compile a library for
//! drawing.

use xshell::{Shell, cmd};

pub(crate) fn run(sh: &Shell) -> anyhow::Result<()> {
    cmd!(sh, "cargo run --quiet --package xtask-plot").run()?;
    Ok(())
}
