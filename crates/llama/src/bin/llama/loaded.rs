//! A model with its device and its tokenizer.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow};
use backend_api::{DeviceInfo, ErrorKind};
use llama::gguf::{Gguf, Value};
use llama::{ChatTemplate, Model, Precision, Session, SessionOptions, Tokenizer};
use memmap2::Mmap;
use model_cli::note;

use crate::args::{Common, PrecisionName};
use crate::report;
use crate::sampling::SamplingArgs;

/// Tokens of a context that nobody chose: caches are allocated as a whole.
const DEFAULT_CONTEXT: usize = 4096;

/// What the commands work with.
pub(crate) struct Loaded {
    pub(crate) model: Arc<Model>,
    pub(crate) tokenizer: Tokenizer,
    /// What can't be parsed matters to chats alone.
    pub(crate) template: llama::Result<Option<ChatTemplate>>,
    pub(crate) device: DeviceInfo,
    pub(crate) reason: String,
    /// What the file calls the model.
    pub(crate) name: String,
    /// Bytes of all tensors.
    pub(crate) bytes: usize,
    /// Numbers of all tensors.
    pub(crate) parameters: usize,
    pub(crate) seconds: f64,
}

/// A model with a session whose kernels are compiled.
pub(crate) struct Ready {
    pub(crate) loaded: Loaded,
    pub(crate) session: Session,
    /// How long the kernels took, once the model was loaded.
    pub(crate) warm_up_seconds: f64,
}

/// Opens the backend and loads the model.
pub(crate) fn load(common: &Common) -> anyhow::Result<Loaded> {
    let (loaded, (), _) = load_beside(common, |_| Ok(()), |()| ())?;
    Ok(loaded)
}

/// [`load`] that compiles, while the model is uploaded, what prompts of some lengths and the tokens after them need in the session
/// that `begin` makes. Without it, a text waits for kernels as it comes to them.
pub(crate) fn load_and_warm_up(
    common: &Common,
    sampling: &SamplingArgs,
    begin: impl FnOnce(&Loaded) -> anyhow::Result<(Session, Vec<usize>)>,
) -> anyhow::Result<Ready> {
    let (loaded, (session, _), warm_up_seconds) = load_beside(common, begin, |(session, prompts)| {
        if let Err(error) = pollster::block_on(session.warm_up_async(prompts, &sampling.sampling())) {
            note(format_args!("llama: kernels aren't compiled ahead: {error}"));
        }
    })?;
    Ok(Ready { loaded, session, warm_up_seconds })
}

/// [`load`] that hands a model to `begin` once its memory is allocated, and what that makes of it to `beside`, on a thread of its own,
/// while the memory is filled. How many seconds the thread took longer than that is told.
fn load_beside<T: Sync>(
    common: &Common,
    begin: impl FnOnce(&Loaded) -> anyhow::Result<T>,
    beside: impl FnOnce(&T) + Send,
) -> anyhow::Result<(Loaded, T, f64)> {
    let start = Instant::now();
    let path = common.model.as_path();
    let mapped = map(path).with_context(|| format!("can't read {}", path.display()))?;
    let file = Gguf::parse(&mapped).with_context(|| format!("can't read {}", path.display()))?;
    let tokenizer = Tokenizer::from_metadata(file.metadata())?;
    let template = ChatTemplate::from_metadata(file.metadata(), &tokenizer);

    let selection = model_cli::select(&common.backend)?;
    let device = selection.backend.capabilities()?;
    let precision =
        common.precision.map_or_else(|| Precision::suited(&device, &file), PrecisionName::precision);
    let backend = Arc::from(selection.backend);
    let loading = || format!("can't load {}", path.display());
    let (model, filling) = Model::allocate(&backend, &file, precision).with_context(loading)?;
    let name = file.metadata().get("general.name").and_then(Value::text);
    // Shown at terminals and in tables, which control characters would change.
    let name = name.map(|name| name.replace(char::is_control, "\u{fffd}"));
    // A tensor of a type that isn't read may claim any shape.
    let count = |shape: &[usize]| shape.iter().fold(1usize, |count, &extent| count.saturating_mul(extent));
    let mut loaded = Loaded {
        model: Arc::new(model.with_math(common.math.mode())),
        tokenizer,
        template,
        device: selection.device,
        reason: selection.reason,
        name: name.unwrap_or_else(|| path.display().to_string()),
        bytes: file.tensors().map(|(_, tensor)| tensor.data.len()).sum(),
        parameters: file.tensors().fold(0usize, |sum, (_, tensor)| sum.saturating_add(count(&tensor.shape))),
        seconds: 0.0,
    };
    let begun = begin(&loaded)?;
    let longer = thread::scope(|scope| {
        // Where the system refuses a thread, kernels are compiled at their first use.
        let beside = thread::Builder::new().spawn_scoped(scope, || beside(&begun)).ok();
        model_cli::with_loading_bar(|progress| filling.run(progress)).with_context(loading)?;
        backend.synchronize()?;
        loaded.seconds = start.elapsed().as_secs_f64();
        let filled = Instant::now();
        if let Some(beside) = beside {
            beside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        anyhow::Ok(filled.elapsed().as_secs_f64())
    })?;
    Ok((loaded, begun, longer))
}

impl Loaded {
    /// An empty session with the context that was asked for.
    pub(crate) fn session(&self, common: &Common) -> anyhow::Result<Session> {
        self.session_of(common, self.model.config().context_length.min(DEFAULT_CONTEXT), 1)
    }

    /// An empty session of some sequences, each with the context that was asked for, or of so many tokens. A context
    /// that is longer than the model knows is warned of.
    pub(crate) fn session_of(
        &self,
        common: &Common,
        unasked: usize,
        sequences: usize,
    ) -> anyhow::Result<Session> {
        let trained = self.model.config().context_length;
        let context = match common.ctx {
            Some(0) => trained,
            asked => asked.unwrap_or(unasked),
        };
        if context > trained {
            note(format_args!(
                "llama: the model was trained with {}; texts get worse beyond them",
                report::count(trained, "token")
            ));
        }
        let mut options = SessionOptions::new(context).with_sequences(sequences);
        if let Some(cache) = common.cache_type {
            options = options.with_cache(cache.format());
        }
        let too_large = |error: &llama::Error| {
            let llama::Error::Backend(error) = error else { return false };
            matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::Limit | ErrorKind::Overflow)
        };
        Session::new(&self.model, options).map_err(|error| {
            if let llama::Error::CacheType { cache, activations } = error {
                return anyhow!(
                    "--cache-type {cache} needs activations of {cache}, and these are {activations}; give --precision f32, or \
                     --cache-type f16 or q8_0"
                );
            }
            let is_too_large = too_large(&error);
            let error = anyhow::Error::from(error);
            if !is_too_large {
                return error;
            }
            let tokens = report::count(context, "token");
            error.context(match sequences {
                0 | 1 => format!("no room for a cache of {tokens}; give a smaller --ctx"),
                _ => format!(
                    "no room for caches of {tokens} for {sequences} sequences; give fewer by --parallel, or a smaller --ctx"
                ),
            })
        })
    }
}

fn map(path: &Path) -> io::Result<Mmap> {
    // Before it is opened: a pipe would wait there for a writer.
    let kind = fs::metadata(path)?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "a directory" } else { "not a regular file" };
        return Err(io::Error::other(format!(
            "it is {what}; a model must be a regular file, as it is mapped into memory"
        )));
    }
    let file = File::open(path)?;
    // SAFETY: the map is only read, and only while the model is uploaded. Whoever changes the file meanwhile
    // changes what is read; that is the caller's to avoid, as with every mapped file.
    unsafe { Mmap::map(&file) }
}
