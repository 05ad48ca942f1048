//! The command `minilm`: ranks the passages of text files against a question.

mod args;
mod report;
mod search;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use backend_api::Registry;
use clap::Parser;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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
    let logged = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    tracing_subscriber::registry().with(logged).with(log_filter()?).init();

    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_webgpu::register(&mut registry);
    backend_verify::register(&mut registry);

    let output = if args.list {
        report::devices(&registry.available(), args.json)?
    } else {
        let report = search::run(&registry, args)?;
        if args.json { report.json()? } else { report.text() }
    };
    io::stdout().write_all(output.as_bytes())?;
    Ok(())
}

/// What RUST_LOG asks for, or errors.
fn log_filter() -> anyhow::Result<Targets> {
    match std::env::var("RUST_LOG") {
        Ok(directives) if !directives.is_empty() => {
            directives.parse().with_context(|| format!("can't read RUST_LOG={directives}"))
        }
        _ => Ok(Targets::new().with_default(LevelFilter::ERROR)),
    }
}
