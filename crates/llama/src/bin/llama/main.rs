//! The command `llama`: language models from GGUF files.

mod advice;
mod args;
mod bench;
mod chat;
mod devices;
mod input;
mod loaded;
mod numbers;
mod perplexity;
mod report;
mod run;
mod sampling;
mod spellings;
mod text;

use std::process::ExitCode;

use args::Task;

fn main() -> ExitCode {
    let args = args::Args::read();
    model_cli::main("llama", || match &args.task {
        Task::Run(args) => run::run(args),
        Task::Chat(args) => chat::run(args).map(|()| ExitCode::SUCCESS),
        Task::Bench(args) => bench::run(args).map(|()| ExitCode::SUCCESS),
        Task::Perplexity(args) => perplexity::run(args).map(|()| ExitCode::SUCCESS),
        Task::Devices(args) => devices::run(args).map(|()| ExitCode::SUCCESS),
    })
}
