//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use backend_api::kv::KvFormat;
use backend_api::{DType, MathMode};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use llama::{Precision, Sampling};

use crate::spellings;

/// Runs language models from GGUF files on any device there is.
///
/// RUST_LOG sets what is logged to the standard error, such as RUST_LOG=debug; COMPUTE_BACKEND is what `--backend auto` takes;
/// COMPUTE_CACHE_DIR names a folder that keeps compiled kernels.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) task: Task,
}

impl Args {
    /// Reads the command line. A wrong one is told of, and ends the process with the code 2.
    pub(crate) fn read() -> Self {
        let line: Vec<OsString> = std::env::args_os().collect();
        let task = line.get(1).cloned().unwrap_or_default();
        let line = spellings::translated(line)
            .unwrap_or_else(|said| Self::refuse(&task, ErrorKind::UnknownArgument, &said));
        let args = Self::parse_from(line);
        if let Task::Run(RunArgs { prompt: None, text: None, file: None, .. }) = args.task {
            Self::refuse(&task, ErrorKind::MissingRequiredArgument, NO_PROMPT);
        }
        args
    }

    /// Tells of an error with the usage of a task.
    fn refuse(task: &OsStr, kind: ErrorKind, said: &str) -> ! {
        let mut command = Self::command();
        command.build();
        let name = task.to_str().unwrap_or_default();
        let task = command.find_subcommand_mut(name).map(|task| task.error(kind, said));
        task.unwrap_or_else(|| Self::command().error(kind, said)).exit()
    }
}

const NO_PROMPT: &str = "there is no text to go on with: give one behind the model, a file with -f FILE, or the standard input with -";

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Continue a text
    Run(RunArgs),
    /// Chat, with a line of the standard input for each message
    Chat(ChatArgs),
    /// Measure prompts and decoding, with llama-bench's columns
    Bench(BenchArgs),
    /// Measure how well a model predicts a text, by the second half of each piece of --ctx tokens, as llama.cpp does
    Perplexity(PerplexityArgs),
    /// Print the devices that there are, with the names that --backend takes
    Devices,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// The model, a GGUF file
    pub(crate) model: PathBuf,

    /// Where to compute: auto, cpu, webgpu, webgpu:1, webgpu:vulkan, … as `llama devices` shows them
    #[arg(long, default_value = "auto")]
    pub(crate) backend: String,

    /// Context length in tokens, prompt and answer together; texts get worse beyond what the model was trained with [default:
    /// what the model was trained with, at most 4096; of bench, what the tests need]
    #[arg(long, short, alias = "ctx-size", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) ctx: Option<usize>,

    /// How keys and values are kept: llama.cpp's -ctk and -ctv, given alike [default: f16 where the device has it]
    #[arg(long, value_enum)]
    pub(crate) cache_type: Option<CacheType>,

    /// The types of activations: f32, or mixed, f16 for products and attention and f32 for what layers add up [default: mixed
    /// where the device has tensor cores, but for files of F32 and BF16, else f32]
    #[arg(long, value_enum)]
    pub(crate) precision: Option<PrecisionName>,

    /// The arithmetic of products with quantised weights; int8 may round their activations to 8 bits, where that is
    /// faster on a GPU, and always does so on the CPU
    #[arg(long, value_enum, default_value_t = Math::Standard)]
    pub(crate) math: Math,

    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheType {
    /// Only where activations are f32, as with --precision f32
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
pub(crate) enum PrecisionName {
    F32,
    Mixed,
}

impl PrecisionName {
    pub(crate) const fn precision(self) -> Precision {
        match self {
            Self::F32 => Precision::F32,
            Self::Mixed => Precision::Mixed,
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
    #[arg(
        long,
        short = 'n',
        aliases = ["n-predict", "predict"],
        default_value_t = 256,
        value_parser = whole,
        allow_negative_numbers = true
    )]
    pub(crate) tokens: usize,

    /// Seed of the random numbers
    #[arg(long, short_alias = 's', default_value_t = 0, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,

    /// Temperature: 0 always takes the most probable token, more is more random
    #[arg(
        long,
        alias = "temperature",
        default_value_t = 0.8,
        value_parser = not_negative,
        allow_negative_numbers = true
    )]
    pub(crate) temp: f32,

    /// Choose among so many tokens; 0 for all
    #[arg(long, default_value_t = 40, value_parser = whole, allow_negative_numbers = true)]
    pub(crate) top_k: usize,

    /// Choose among the most probable tokens whose probabilities add up to this (0 to 1)
    #[arg(long, default_value_t = 0.95, value_parser = fraction, allow_negative_numbers = true)]
    pub(crate) top_p: f32,

    /// Choose among tokens at least this fraction as probable as the best one (0 to 1)
    #[arg(long, default_value_t = 0.05, value_parser = fraction, allow_negative_numbers = true)]
    pub(crate) min_p: f32,

    /// Divides the logits of a text's last 64 tokens (above 0; 1 for none)
    #[arg(long, default_value_t = 1.0, value_parser = above_zero, allow_negative_numbers = true)]
    pub(crate) repeat_penalty: f32,
}

fn number(text: &str, is_right: impl Fn(f32) -> bool, what: &str) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() && is_right(number) { Ok(number) } else { Err(format!("not {what}")) }
}

fn not_negative(text: &str) -> Result<f32, String> {
    number(text, |number| number >= 0.0, "a finite number ≥ 0")
}

fn above_zero(text: &str) -> Result<f32, String> {
    number(text, |number| number > 0.0, "a finite number > 0")
}

fn fraction(text: &str) -> Result<f32, String> {
    number(text, |number| (0.0..=1.0).contains(&number), "a number from 0 to 1")
}

fn whole(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "not a whole number ≥ 0".to_owned())
}

fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&number| number > 0).ok_or_else(|| "not a whole number ≥ 1".to_owned())
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "not a whole number ≥ 0".to_owned())
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
    /// The text to go on with; - reads it from the standard input, without the line break at its end
    pub(crate) prompt: Option<String>,
    /// The text to go on with, which may begin with a dash here
    #[arg(
        id = "text",
        long = "prompt",
        short = 'p',
        value_name = "PROMPT",
        conflicts_with = "prompt",
        allow_hyphen_values = true
    )]
    pub(crate) text: Option<String>,
    /// A file with the text to go on with, whose last line break isn't a part of it; - is the standard input
    #[arg(long, short = 'f', value_name = "PATH", conflicts_with_all = ["prompt", "text"])]
    pub(crate) file: Option<PathBuf>,
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
    #[arg(short = 'p', long, alias = "n-prompt", default_value_t = 512, value_parser = whole, allow_negative_numbers = true)]
    pub(crate) prompt: usize,
    /// Tokens decoded one after the other; 0 for no such test
    #[arg(short = 'n', long, alias = "n-gen", default_value_t = 128, value_parser = whole, allow_negative_numbers = true)]
    pub(crate) generate: usize,
    /// Tokens that are in the cache before a test
    #[arg(short = 'd', long, alias = "n-depth", default_value_t = 0, value_parser = whole, allow_negative_numbers = true)]
    pub(crate) depth: usize,
    /// How often each test is measured, after a second of warm-up
    #[arg(short = 'r', long, default_value_t = 5, value_parser = positive, allow_negative_numbers = true)]
    pub(crate) repetitions: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The text; - is the standard input
    pub(crate) file: PathBuf,
}
