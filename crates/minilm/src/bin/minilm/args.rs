//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Ranks the passages of text files against a question, by sentence embeddings.
///
/// RUST_LOG sets what is logged to the standard error, such as RUST_LOG=debug.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// Text or Markdown files
    #[arg(value_name = "FILE", required_unless_present = "list")]
    pub(crate) files: Vec<PathBuf>,

    /// What to look for
    #[arg(long, short, required_unless_present = "list")]
    pub(crate) query: Option<String>,

    /// Where to compute: auto, cpu, webgpu, webgpu:1, … as --list shows them
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,

    /// Directory with config.json, tokenizer.json and model.safetensors [default: $MINILM_MODEL or
    /// .cache/minilm]
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,

    /// How many passages to show
    #[arg(long, default_value_t = 5)]
    pub(crate) top: usize,

    /// How many passages to run together
    #[arg(long, default_value_t = minilm::DEFAULT_BATCH_SIZE)]
    pub(crate) batch: usize,

    /// Keep weights and activations as f16, where the device has it: half the memory, three digits
    #[arg(long)]
    pub(crate) half: bool,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,

    /// List the devices that can be used, and stop
    #[arg(long)]
    pub(crate) list: bool,
}
