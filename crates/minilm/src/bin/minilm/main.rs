//! The command `minilm`: ranks the passages of text files against a question.

mod args;
mod report;
mod search;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = args::Args::parse();
    model_cli::main("minilm", || run(&args))
}

fn run(args: &args::Args) -> anyhow::Result<()> {
    let output = if args.list {
        report::devices(&model_cli::registry().available(), args.json)?
    } else {
        let report = search::run(args)?;
        if args.json { report.json()? } else { report.text() }
    };
    io::stdout().write_all(output.as_bytes())?;
    Ok(())
}
