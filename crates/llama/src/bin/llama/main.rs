//! The command `llama`: language models from GGUF files.

mod args;
mod bench;
mod chat;
mod loaded;
mod perplexity;
mod report;
mod run;

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use args::Task;
use clap::Parser;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

fn main() -> ExitCode {
    match run(&args::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("llama: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &args::Args) -> anyhow::Result<()> {
    let logged = tracing_subscriber::fmt::layer().with_writer(io::stderr);
    tracing_subscriber::registry().with(logged).with(log_filter()?).init();
    match &args.task {
        Task::Run(args) => run::run(args),
        Task::Chat(args) => chat::run(args),
        Task::Bench(args) => bench::run(args),
        Task::Perplexity(args) => perplexity::run(args),
        Task::Devices => report::devices(&loaded::registry().available()),
    }
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
