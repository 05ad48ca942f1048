//! Texts that a model goes on with: their caches, and the step that adds tokens to them.

mod chooser;
mod decode;
mod decoder;
mod score;
mod warm_up;

use std::sync::Arc;

use backend_api::desc::{GatherDesc, IndexShape, Matrix};
use backend_api::kv::KvFormat;
use backend_api::owned::Buffer;
use backend_api::{BackendError, BackendResult, DType};
use decoder::Decoder;

use crate::activations::Activations;
use crate::cache::{Cache, Placement, Run};
use crate::layer::Pass;
use crate::precision::RESIDUAL;
use crate::rotations::Rotations;
use crate::{Error, Model, Result};

/// Rows of the longest pass: longer texts take several.
const MAX_ROWS: usize = 512;

/// How much a session remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionOptions {
    /// Sequences beside each other.
    pub sequences: usize,
    /// Tokens of each.
    pub context: usize,
    /// How keys and values are cached: as f16, in the type of the activations, or as
    /// [`Q8_0`](KvFormat::Q8_0), which takes a little more than half as much memory as f16; `None` for f16 where the
    /// device has it.
    pub cache: Option<KvFormat>,
}

impl SessionOptions {
    /// One sequence of up to `context` tokens.
    #[must_use]
    pub const fn new(context: usize) -> Self {
        Self { sequences: 1, context, cache: None }
    }

    /// Several sequences.
    #[must_use]
    pub const fn with_sequences(mut self, sequences: usize) -> Self {
        self.sequences = sequences;
        self
    }

    /// Keeps keys and values in another format.
    #[must_use]
    pub const fn with_cache(mut self, cache: KvFormat) -> Self {
        self.cache = Some(cache);
        self
    }
}

/// The next tokens of a sequence.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Which sequence.
    pub sequence: usize,
    /// Its next tokens, one or more.
    pub tokens: &'a [u32],
}

/// Sequences of tokens that a model has seen, on the device.
///
/// The caches of keys and values are allocated once and don't grow: a sequence ends at its context.
#[derive(Debug)]
pub struct Session {
    model: Arc<Model>,
    cache: Cache,
    rotations: Rotations,
    lengths: Vec<usize>,
    activations: Option<Activations>,
    decoder: Option<Decoder>,
}

/// The logits of the last token of each input of a step, on the device: `[count, vocabulary]` of f32.
#[derive(Debug)]
pub struct Logits {
    buffer: Buffer,
    rows: usize,
    vocabulary: usize,
}

impl Logits {
    /// The device memory.
    #[must_use]
    pub const fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// All logits, row by row.
    ///
    /// # Errors
    /// [`Error::Backend`].
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        Ok(self.buffer.to_vec()?)
    }

    /// [`to_vec`](Self::to_vec) that waits without blocking.
    ///
    /// # Errors
    /// [`Error::Backend`].
    pub async fn to_vec_async(&self) -> Result<Vec<f32>> {
        Ok(self.buffer.to_vec_async().await?)
    }

    /// Numbers in a row.
    #[must_use]
    pub const fn vocabulary(&self) -> usize {
        self.vocabulary
    }
}

impl Session {
    /// Allocates the caches.
    ///
    /// # Errors
    /// [`Error::Argument`] for a context of no tokens, no sequence, or heads that aren't whole blocks of the cache,
    /// [`Error::CacheType`], [`Error::Backend`], [`Unsupported`](backend_api::BackendError::Unsupported) for a cache of
    /// f16 where the device has none.
    pub fn new(model: &Arc<Model>, options: SessionOptions) -> Result<Self> {
        let SessionOptions { sequences, context, cache } = options;
        at_least_one("sequences", sequences)?;
        at_least_one("context", context)?;
        let backend = model.backend();
        let config = model.config();
        let has_f16 = backend.capabilities()?.f16;
        let default = if has_f16 { DType::F16 } else { DType::F32 };
        let (cache, activations) = (cache.unwrap_or(default.into()), model.precision().operands());
        match cache {
            KvFormat::Float(DType::F16) if !has_f16 => {
                let need =
                    "a device with f16 for a cache of f16; one of f32 or q8_0 (--cache-type) does without"
                        .to_owned();
                return Err(BackendError::Unsupported { op: "session", need }.into());
            }
            KvFormat::Float(dtype) if dtype == DType::F16 || dtype == activations => {}
            KvFormat::Q8_0 if config.head_dim.is_multiple_of(KvFormat::BLOCK) => {}
            KvFormat::Q8_0 => {
                let expected = format!("a multiple of {} for a cache of q8_0", KvFormat::BLOCK);
                return Err(Error::Argument { what: "the length of a head", expected, got: config.head_dim });
            }
            _ => return Err(Error::CacheType { cache, activations }),
        }
        let cache = Cache::new(backend, config, cache, sequences, context)?;
        let rotations = Rotations::new(backend, config, context, activations)?;
        let model = Arc::clone(model);
        Ok(Self { model, cache, rotations, lengths: vec![0; sequences], activations: None, decoder: None })
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Tokens that a sequence can have.
    #[must_use]
    pub const fn context(&self) -> usize {
        self.cache.capacity
    }

    /// How keys and values are cached.
    #[must_use]
    pub const fn cache_format(&self) -> KvFormat {
        self.cache.format
    }

    /// Tokens of a sequence; 0 for one that isn't there.
    #[must_use]
    pub fn len(&self, sequence: usize) -> usize {
        self.lengths.get(sequence).copied().unwrap_or(0)
    }

    /// Whether no sequence has a token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lengths.iter().all(|&length| length == 0)
    }

    /// Forgets the tokens of a sequence from `len` on.
    pub fn truncate(&mut self, sequence: usize, len: usize) {
        if let Some(length) = self.lengths.get_mut(sequence) {
            *length = len.min(*length);
        }
    }

    /// Adds the next tokens of some sequences, many or few of each, and returns the logits of the token that
    /// follows each of them. A failed step adds nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that isn't there or that is named twice, no tokens, or a token
    /// outside the vocabulary; [`Error::TooLong`]; [`Error::Backend`].
    pub fn step(&mut self, inputs: &[Input<'_>]) -> Result<Logits> {
        self.check(inputs)?;
        let vocabulary = self.model.config().vocabulary;
        let backend = Arc::clone(self.model.backend());
        let count = inputs.len();
        let logits = Buffer::of(&backend, DType::F32, &[count, vocabulary])?;
        let mut done = 0;
        for (tokens, runs, ends) in passes(inputs, &self.lengths) {
            let activations = self.upload(&tokens, &runs)?;
            let rows = Matrix::new(logits.ptr(), DType::F32, vocabulary).with_offset(done * vocabulary);
            let ends = Ends::new(&self.model, &ends, rows)?;
            let pass = self.pass(&activations, Placement::Runs(&runs));
            self.model.forward(&pass)?;
            if let Some(ends) = ends {
                ends.record(&self.model, &pass)?;
                done += ends.count;
            }
            self.activations = Some(activations);
        }
        self.model.cap(backend.as_ref(), count, Matrix::new(logits.ptr(), DType::F32, vocabulary))?;
        for input in inputs {
            self.advance(input.sequence, input.tokens.len());
        }
        Ok(Logits { buffer: logits, rows: count, vocabulary })
    }

    fn advance(&mut self, sequence: usize, tokens: usize) {
        if let Some(length) = self.lengths.get_mut(sequence) {
            *length += tokens;
        }
    }

    fn check(&self, inputs: &[Input<'_>]) -> Result<()> {
        for (i, input) in inputs.iter().enumerate() {
            let Some(&length) = self.lengths.get(input.sequence) else {
                let expected = format!("less than {}", self.lengths.len());
                return Err(Error::Argument { what: "a sequence", expected, got: input.sequence });
            };
            if inputs[..i].iter().any(|other| other.sequence == input.sequence) {
                let expected = "named once".to_owned();
                return Err(Error::Argument { what: "a sequence", expected, got: input.sequence });
            }
            at_least_one("a sequence's number of tokens", input.tokens.len())?;
            self.check_tokens(input.tokens)?;
            let tokens = length.saturating_add(input.tokens.len());
            if tokens > self.context() {
                return Err(Error::TooLong { tokens, capacity: self.context() });
            }
        }
        Ok(())
    }

    fn check_tokens(&self, tokens: &[u32]) -> Result<()> {
        let vocabulary = self.model.config().vocabulary;
        match tokens.iter().find(|&&token| token as usize >= vocabulary) {
            None => Ok(()),
            Some(&token) => {
                let expected = format!("less than {vocabulary}");
                Err(Error::Argument { what: "a token", expected, got: token as usize })
            }
        }
    }

    /// Activations with the tokens of a pass and their positions.
    fn upload(&mut self, tokens: &[u32], runs: &[Run]) -> Result<Activations> {
        let kept = self.activations.take().filter(|kept| kept.rows == tokens.len());
        let activations = match kept {
            Some(kept) => kept,
            None => self.model.activations(tokens.len(), &self.cache)?,
        };
        let positions: Vec<u32> =
            runs.iter().flat_map(|run| (run.position..run.position + run.rows).map(|at| at as u32)).collect();
        activations.ids.upload(tokens)?;
        activations.positions.upload(&positions)?;
        if let Some((buffer, rows)) = activations.cache_rows.as_ref().zip(self.cache.rows_of(runs)) {
            buffer.upload(&rows)?;
        }
        Ok(activations)
    }

    fn pass<'a>(&'a self, activations: &'a Activations, placement: Placement<'a>) -> Pass<'a> {
        Pass {
            backend: self.model.backend().as_ref(),
            config: self.model.config(),
            activations,
            cache: &self.cache,
            rotations: &self.rotations,
            placement,
        }
    }
}

/// The rows of a pass that logits follow.
#[derive(Debug)]
struct Ends {
    count: usize,
    /// `[count]` of u32.
    rows: Buffer,
    /// `[count, hidden]`: these rows of what the last layer leaves.
    x: Buffer,
    logits: Matrix,
}

impl Ends {
    /// `None` if there are no such rows.
    fn new(model: &Model, rows: &[u32], logits: Matrix) -> BackendResult<Option<Self>> {
        if rows.is_empty() {
            return Ok(None);
        }
        let (backend, count) = (model.backend(), rows.len());
        let x = Buffer::of(backend, RESIDUAL, &[count, model.config().hidden])?;
        Ok(Some(Self { count, rows: Buffer::from_slice(backend, rows)?, x, logits }))
    }

    fn record(&self, model: &Model, pass: &Pass<'_>) -> BackendResult<()> {
        let Self { count, ref rows, ref x, logits } = *self;
        let a = pass.activations;
        let shape = IndexShape { rows: a.rows, columns: pass.config.hidden, count };
        pass.backend.gather(&GatherDesc::new(RESIDUAL, a.x.ptr(), rows.ptr(), x.ptr(), shape))?;
        model.logits(pass, count, x, logits)
    }
}

fn at_least_one(what: &'static str, got: usize) -> Result<()> {
    if got > 0 { Ok(()) } else { Err(Error::Argument { what, expected: "1 or more".to_owned(), got }) }
}

/// The tokens of a pass, the sequences that they belong to, and the rows at which an input ends.
type PassRows = (Vec<u32>, Vec<Run>, Vec<u32>);

/// Inputs cut into passes of at most [`MAX_ROWS`] rows, in their order.
fn passes(inputs: &[Input<'_>], lengths: &[usize]) -> Vec<PassRows> {
    let mut passes = Vec::new();
    let (mut tokens, mut runs, mut ends) = PassRows::default();
    for &Input { sequence, tokens: new } in inputs {
        let mut position = lengths.get(sequence).copied().unwrap_or(0);
        let mut rest = new;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(MAX_ROWS - tokens.len()));
            runs.push(Run { first: tokens.len(), rows: now.len(), slot: sequence, position });
            tokens.extend(now);
            position += now.len();
            rest = later;
            if rest.is_empty() {
                ends.push(tokens.len() as u32 - 1);
            }
            if tokens.len() == MAX_ROWS {
                passes.push((
                    std::mem::take(&mut tokens),
                    std::mem::take(&mut runs),
                    std::mem::take(&mut ends),
                ));
            }
        }
    }
    if !tokens.is_empty() {
        passes.push((tokens, runs, ends));
    }
    passes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_inputs_take_several_passes() {
        let (long, short) = (vec![7; MAX_ROWS + 3], [1, 2]);
        let inputs = [Input { sequence: 1, tokens: &long }, Input { sequence: 0, tokens: &short }];
        let passes = passes(&inputs, &[5, 9]);
        let run = |first, rows, slot, position| Run { first, rows, slot, position };
        assert_eq!(passes.len(), 2);
        assert_eq!(passes[0], (vec![7; MAX_ROWS], vec![run(0, MAX_ROWS, 1, 9)], vec![]));
        let second = (vec![7, 7, 7, 1, 2], vec![run(0, 3, 1, 9 + MAX_ROWS), run(3, 2, 0, 5)], vec![2, 4]);
        assert_eq!(passes[1], second);
    }
}
