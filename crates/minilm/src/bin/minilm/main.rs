//! The command `minilm`: ranks the passages of text files against a question.

mod args;
mod report;
mod search;

use std::io::{self, Write};
use std::process::ExitCode;

use backend_api::Registry;
use clap::Parser;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    match run(&args::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("minilm: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &args::Args) -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(io::stderr).init();

    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_webgpu::register(&mut registry);

    let output = if args.list {
        report::devices(&registry.available(), args.json)?
    } else {
        let report = search::run(&registry, args)?;
        if args.json { report.json()? } else { report.text() }
    };
    io::stdout().write_all(output.as_bytes())?;
    Ok(())
}
