//! The demonstration of language models: the small one that is trained here, on whatever backend there is.

use xshell::{Shell, cmd};

use crate::programs;

/// Trained by `crates/llama/models/train.py`.
const MODEL: &str = "crates/llama/models/bytes-1m-q8_0.gguf";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The backend: "auto", "cpu", "webgpu", "webgpu:1", "webgpu:vulkan"; with --profile dev also "verify:FIRST,SECOND"
    #[arg(long, default_value = "auto")]
    backend: String,
    /// A text to go on with; without one, each line that is typed
    #[arg(long)]
    prompt: Option<String>,
    /// The most tokens of each answer; a token of this model is a byte
    #[arg(long, default_value_t = 200)]
    tokens: usize,
    /// The Cargo profile to build with; dev builds the whole workspace, as its tests do
    #[arg(long, default_value = "demo")]
    profile: String,
    /// Another GGUF file
    #[arg(long, default_value = MODEL)]
    model: String,
}

pub(crate) fn run(sh: &Shell, args: &Args) -> anyhow::Result<()> {
    let Args { backend, prompt, tokens, profile, model } = args;
    anyhow::ensure!(
        sh.path_exists(model),
        "{model} isn't there: `python3 crates/llama/models/train.py` trains it (the script says what it needs), or name \
         another file with --model"
    );
    let tokens = tokens.to_string();
    let llama = programs::build(sh, &["llama"], profile)?.join("llama");
    let command = match prompt {
        Some(prompt) => cmd!(sh, "{llama} run {model} {prompt} --backend {backend} --tokens {tokens}"),
        None => cmd!(sh, "{llama} chat {model} --backend {backend} --tokens {tokens}"),
    };
    command.run()?;
    Ok(())
}
