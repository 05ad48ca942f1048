//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use backend_api::kv::KvFormat;
use backend_api::{DType, MathMode};
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use llama::Precision;

use crate::numbers::{positive, whole};
use crate::report;
use crate::sampling::SamplingArgs;
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
        if let Err((kind, said)) = args.task.check() {
            Self::refuse(&task, kind, &said);
        }
        args
    }

    /// The options that a task has, as they are spelled.
    pub(crate) fn options(task: &str) -> Vec<String> {
        let mut command = Self::command();
        command.build();
        let options = command.find_subcommand(task).into_iter().flat_map(clap::Command::get_arguments);
        let names = |option: &clap::Arg| {
            let long = option.get_long().into_iter().chain(option.get_all_aliases().unwrap_or_default());
            let short =
                option.get_short().into_iter().chain(option.get_all_short_aliases().unwrap_or_default());
            let long = long.map(|name| format!("--{name}"));
            long.chain(short.map(|name| format!("-{name}"))).collect::<Vec<_>>()
        };
        options.flat_map(names).collect()
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
    Devices(DevicesArgs),
}

impl Task {
    /// What is wrong with values that can be right each by itself.
    fn check(&self) -> Result<(), (ErrorKind, String)> {
        match self {
            Self::Run(args) => args.check(),
            Self::Chat(args) => args.common.check(),
            Self::Bench(args) => args.check(),
            Self::Perplexity(args) => args.check(),
            Self::Devices(_) => Ok(()),
        }
    }
}

/// A name as [`backend_api::Registry::select`] takes it. Whether there is such a device is told when it is opened.
fn backend(text: &str) -> Result<String, String> {
    let registry = model_cli::registry();
    let known = [&["auto"][..], &registry.names()].concat();
    let name = text.split_once(':').map_or(text, |(name, _)| name);
    // The best device has no index.
    if known.contains(&name) && (name != "auto" || text == name) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "no backend is called {text:?} (known: {}); `llama devices` lists what there is",
        known.join(", ")
    ))
}

#[derive(Debug, clap::Args)]
pub(crate) struct Common {
    /// The model, a GGUF file
    pub(crate) model: PathBuf,

    /// Where to compute: auto, cpu, webgpu, webgpu:1, webgpu:vulkan, … as `llama devices` shows them
    #[arg(long, default_value = "auto", value_parser = backend)]
    pub(crate) backend: String,

    /// Context length in tokens, prompt and answer together; texts get worse beyond what the model was trained with, which 0
    /// stands for [default: what the model was trained with, at most 4096; of bench, what the tests need]
    #[arg(long, short, alias = "ctx-size", value_parser = whole, allow_negative_numbers = true)]
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

impl Common {
    fn check(&self) -> Result<(), (ErrorKind, String)> {
        match (self.cache_type, self.precision) {
            (Some(CacheType::F32), Some(PrecisionName::Mixed)) => Err((
                ErrorKind::ArgumentConflict,
                "--cache-type f32 needs activations of f32, and those of --precision mixed are f16"
                    .to_owned(),
            )),
            _ => Ok(()),
        }
    }
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
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The text to go on with; - reads it from the standard input, without the line break at its end
    pub(crate) prompt: Option<String>,
    /// The text to go on with, which may begin with a dash here; - reads it from the standard input
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

impl RunArgs {
    fn check(&self) -> Result<(), (ErrorKind, String)> {
        if self.prompt.is_none() && self.text.is_none() && self.file.is_none() {
            return Err((ErrorKind::MissingRequiredArgument, NO_PROMPT.to_owned()));
        }
        self.common.check()
    }
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
    /// Sequences that are decoded together, a token of each at a time; speeds are those of all of them
    #[arg(long, default_value_t = 1, value_parser = positive, allow_negative_numbers = true)]
    pub(crate) parallel: usize,
    /// How often each test is measured, after a second of warm-up
    #[arg(short = 'r', long, default_value_t = 5, value_parser = positive, allow_negative_numbers = true)]
    pub(crate) repetitions: usize,
}

impl BenchArgs {
    fn check(&self) -> Result<(), (ErrorKind, String)> {
        let wrong = |said: String| Err((ErrorKind::ValueValidation, said));
        if self.prompt == 0 && self.generate == 0 {
            return wrong("there is nothing to measure: -p and -n are 0".to_owned());
        }
        let Some(longest) = self.longest() else {
            return wrong("-d, -p and -n are too large".to_owned());
        };
        match self.common.ctx {
            Some(context) if 0 < context && context < longest => wrong(too_short(longest, context)),
            _ => self.common.check(),
        }
    }

    /// Tokens of the longest test.
    pub(crate) fn longest(&self) -> Option<usize> {
        self.depth.checked_add(self.prompt.max(self.generate))
    }
}

/// That a test of `bench` doesn't fit.
pub(crate) fn too_short(longest: usize, context: usize) -> String {
    let longest = report::count(longest, "token");
    format!("a test takes {longest} (-d, and -p or -n), the context holds {context}; give a larger --ctx")
}

#[derive(Debug, clap::Args)]
pub(crate) struct DevicesArgs {
    /// Print one JSON document
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct PerplexityArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    /// The text; - is the standard input
    pub(crate) file: PathBuf,
}

impl PerplexityArgs {
    fn check(&self) -> Result<(), (ErrorKind, String)> {
        match self.common.ctx {
            Some(1 | 2) => Err((
                ErrorKind::ValueValidation,
                "of a piece of --ctx tokens, the first half isn't scored, nor is the token behind it: give 3 or more"
                    .to_owned(),
            )),
            _ => self.common.check(),
        }
    }
}
