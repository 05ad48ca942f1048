//! The command line.

use std::path::PathBuf;

use backend_api::kv::KvFormat;
use backend_api::{DType, MathMode};
use clap::{Parser, Subcommand, ValueEnum};
use llama::Sampling;

/// Runs language models from GGUF files on any device there is.
///
/// RUST_LOG sets what is logged to the standard error, such as RUST_LOG=debug.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Go on with a text
    Run(RunArgs),
    /// Chat, with a line of the standard input for each message
    Chat(ChatArgs),
    /// Measure prompts and decoding, with llama-bench's columns
    Bench(BenchArgs),
    /// Measure how well a model predicts a text
    Perplexity(PerplexityArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// The model, a GGUF file
    pub(crate) model: PathBuf,

    /// Where to compute: auto, cpu, webgpu, webgpu:1, webgpu:vulkan, …
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,

    /// Tokens that the caches hold [default: what the model was trained with, at most 4096]
    #[arg(long, short)]
    pub(crate) ctx: Option<usize>,

    /// How keys and values are kept, as llama.cpp's -ctk and -ctv [default: f16 where the device has it]
    #[arg(long, value_enum)]
    pub(crate) cache_type: Option<CacheType>,

    /// Compute with activations of f16 rather than of f32, which is faster on tensor cores
    #[arg(long)]
    pub(crate) half: bool,

    /// The arithmetic of products with quantised weights; int8 may round their activations to 8 bits, where that is
    /// faster
    #[arg(long, value_enum, default_value_t = Math::Standard)]
    pub(crate) math: Math,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheType {
    /// Beside activations of f32
    F32,
    F16,
    /// Blocks of 8 bits, in a little more than half the memory of f16
    #[value(name = "q8_0")]
    Q8_0,
}

impl CacheType {
    pub(crate) const fn format(self) -> KvFormat {
        match self {
            Self::F32 => KvFormat::Float(DType::F32),
            Self::F16 => KvFormat::Float(DType::F16),
            Self::Q8_0 => KvFormat::Q8_0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Math {
    Standard,
    Int8,
}

impl Math {
    pub(crate) const fn mode(self) -> MathMode {
        match self {
            Self::Standard => MathMode::Standard,
            Self::Int8 => MathMode::Int8,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct SamplingArgs {
    /// The most tokens of a text or an answer
    #[arg(long, short = 'n', default_value_t = 256)]
    pub(crate) tokens: usize,

    /// Of the random numbers
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,

    /// How much chance there is; with 0, always the most probable token
    #[arg(long, default_value_t = 0.8, value_parser = not_negative)]
    pub(crate) temp: f32,

    /// Choose among so many tokens; 0 for all
    #[arg(long, default_value_t = 40)]
    pub(crate) top_k: usize,

    /// Choose among the tokens whose probabilities add up to this
    #[arg(long, default_value_t = 0.95, value_parser = not_negative)]
    pub(crate) top_p: f32,

    /// Choose among tokens at least this fraction as probable as the best one
    #[arg(long, default_value_t = 0.05, value_parser = not_negative)]
    pub(crate) min_p: f32,

    /// Divides the logits of tokens that were there lately
    #[arg(long, default_value_t = 1.0, value_parser = not_negative)]
    pub(crate) repeat_penalty: f32,
}

fn not_negative(text: &str) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() && number >= 0.0 { Ok(number) } else { Err("not a finite number ≥ 0".to_owned()) }
}

impl SamplingArgs {
    pub(crate) fn sampling(&self) -> Sampling {
        let mut sampling = Sampling::default();
        sampling.seed = self.seed;
        sampling.temperature = self.temp;
        sampling.top_k = self.top_k;
        sampling.top_p = self.top_p;
        sampling.min_p = self.min_p;
        sampling.repetition_penalty = self.repeat_penalty;
        sampling
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The text to go on with
    pub(crate) prompt: String,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ChatArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// What the model is told before the first message
    #[arg(long)]
    pub(crate) system: Option<String>,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Tokens of the prompt; 0 for no such test
    #[arg(short = 'p', long, default_value_t = 512)]
    pub(crate) prompt: usize,
    /// Tokens decoded one after the other; 0 for no such test
    #[arg(short = 'n', long, default_value_t = 128)]
    pub(crate) generate: usize,
    /// Tokens that are in the cache before a test
    #[arg(short = 'd', long, default_value_t = 0)]
    pub(crate) depth: usize,
    /// How often each test is measured, after a second of warm-up
    #[arg(short = 'r', long, default_value_t = 5)]
    pub(crate) repetitions: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The text
    pub(crate) file: PathBuf,
}
