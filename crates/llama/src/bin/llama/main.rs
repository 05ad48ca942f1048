//! The command `llama`: language models from GGUF files.

mod args;
mod bench;
mod chat;
mod input;
mod loaded;
mod perplexity;
mod report;
mod run;
mod spellings;
mod text;

use std::process::ExitCode;

use args::Task;

fn main() -> ExitCode {
    let args = args::Args::read();
    model_cli::main("llama", || match &args.task {
        Task::Run(args) => run::run(args),
        Task::Chat(args) => chat::run(args),
        Task::Bench(args) => bench::run(args),
        Task::Perplexity(args) => perplexity::run(args),
        Task::Devices => report::devices(&model_cli::registry().available()),
    })
}
