//! The choice of the tokens that follow, on the device: what a captured step has for it, and what is done once.

use std::sync::Arc;

use backend_api::desc::{BinaryDesc, IndexShape, ReduceDesc, ScatterDesc, TensorDesc};
use backend_api::owned::Buffer;
use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType, ReduceOp, ScatterOp};

use super::Logits;
use crate::{Error, Result, Sampler, Sampling};

/// In a window, a token that there is not: `sample` leaves it out.
const NO_TOKEN: i32 = -1;

/// How the tokens that follow are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Choice {
    /// The caller does, from the logits.
    Caller,
    /// The most probable ones.
    Greedy,
    /// At random.
    Sampled(Sampling),
}

impl Choice {
    pub(super) fn of(sampling: &Sampling) -> Self {
        if sampling.is_greedy() { Self::Greedy } else { Self::Sampled(*sampling) }
    }

    /// How many of a text's last tokens matter.
    pub(super) fn window(&self) -> usize {
        match self {
            Self::Sampled(sampling) => sampling.window(),
            Self::Caller | Self::Greedy => 0,
        }
    }
}

/// A choice with its memory.
#[derive(Debug)]
pub(super) enum Chooser {
    Caller,
    Greedy,
    Sampled(Draw),
}

impl Chooser {
    pub(super) fn new(
        backend: &Arc<dyn ComputeBackend>,
        choice: Choice,
        slots: usize,
    ) -> BackendResult<Self> {
        Ok(match choice {
            Choice::Caller => Self::Caller,
            Choice::Greedy => Self::Greedy,
            Choice::Sampled(sampling) => Self::Sampled(Draw::new(backend, sampling, slots)?),
        })
    }
}

/// The part of a captured step that draws tokens.
#[derive(Debug)]
pub(super) struct Draw {
    sampling: Sampling,
    /// A u64, the place of the next random number: two u32, the lower half first.
    offset: Buffer,
    recent: Option<Recent>,
}

/// The last tokens of each sequence.
#[derive(Debug)]
struct Recent {
    /// `[slots, len]` of i32: a sequence's token at position p is in place p mod `len`.
    tokens: Buffer,
    /// `[slots]` of u32: the places of this step's tokens.
    places: Buffer,
    len: usize,
}

impl Draw {
    fn new(backend: &Arc<dyn ComputeBackend>, sampling: Sampling, slots: usize) -> BackendResult<Self> {
        let recent = |len: usize| -> BackendResult<Recent> {
            let tokens = Buffer::of(backend, DType::I32, &[slots, len])?;
            Ok(Recent { tokens, places: Buffer::of(backend, DType::U32, &[slots])?, len })
        };
        let len = Some(sampling.window()).filter(|&len| len > 0);
        let offset = Buffer::of(backend, DType::U32, &[2])?;
        Ok(Self { sampling, offset, recent: len.map(recent).transpose()? })
    }

    /// Uploads where the random numbers begin, and the last tokens of texts. The last one of all is the next step's,
    /// at a position that the sequences' `lengths` tell.
    pub(super) fn place(&self, drawn: u64, texts: &[Vec<u32>], lengths: &[usize]) -> BackendResult<()> {
        self.offset.upload(&[drawn as u32, (drawn >> 32) as u32])?;
        let Some(Recent { tokens, len, .. }) = &self.recent else { return Ok(()) };
        let mut window = vec![NO_TOKEN; texts.len() * len];
        for ((ring, text), &length) in window.chunks_mut(*len).zip(texts).zip(lengths) {
            for (back, &token) in text.iter().rev().take(*len).enumerate() {
                ring[(length % len + len - back) % len] = token.cast_signed();
            }
        }
        tokens.upload(&window)
    }

    /// Draws the tokens that follow `ids` at `positions` into `ids`.
    pub(super) fn record(
        &self,
        backend: &dyn ComputeBackend,
        logits: &Buffer,
        [slots, vocabulary]: [usize; 2],
        [ids, positions]: [&Buffer; 2],
    ) -> BackendResult<()> {
        if let Some(Recent { tokens, places, len }) = &self.recent {
            let shape = [slots];
            let vector = |buffer: &Buffer| TensorDesc::packed(buffer.ptr(), DType::U32, &shape);
            let (position, place) = (vector(positions), vector(places));
            backend.binary_ext(&BinaryDesc::new(BinaryOp::Rem, position, *len as f64, place))?;
            let shape = IndexShape { rows: *len, columns: 1, count: 1 };
            let (table, indices) = (tokens.ptr(), places.ptr());
            let assign = ScatterDesc::new(ScatterOp::Assign, DType::I32, table, indices, ids.ptr(), shape);
            backend.scatter(&assign.with_outer(slots).with_per_element())?;
        }
        let window = self.recent.as_ref().map(|recent| (recent.tokens.ptr(), recent.len));
        let desc = self.sampling.describe([logits.ptr(), ids.ptr()], [slots, vocabulary], window);
        backend.sample(&desc.with_offset_ptr(self.offset.ptr()))?;
        // The lower half: a call draws no more numbers than it counts.
        let low = TensorDesc::packed(self.offset.ptr(), DType::U32, &[1]);
        backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, low, slots as f64, low))
    }
}

/// A number for each row of logits: by `ArgMax` the most probable token, by `Max` the largest logit, which is NaN if there
/// is one.
pub(super) fn reduce_rows(
    backend: &dyn ComputeBackend,
    op: ReduceOp,
    logits: &Buffer,
    shape: [usize; 2],
    output: &Buffer,
) -> BackendResult<()> {
    let input = TensorDesc::packed(logits.ptr(), DType::F32, &shape);
    backend.reduce_ext(&ReduceDesc::new(op, input, &[1], output.ptr()))
}

/// The logarithm of the sum of each row's exponentials: no number, or none that is finite, if a logit isn't.
pub(super) fn log_sums(
    backend: &Arc<dyn ComputeBackend>,
    logits: &Buffer,
    shape: [usize; 2],
) -> BackendResult<Buffer> {
    let sums = Buffer::of(backend, DType::F32, &[shape[0]])?;
    reduce_rows(backend.as_ref(), ReduceOp::LogSumExp, logits, shape, &sums)?;
    Ok(sums)
}

/// Refuses numbers of which one isn't finite.
pub(super) fn check_finite(numbers: &[f32]) -> Result<()> {
    if numbers.iter().all(|number| number.is_finite()) { Ok(()) } else { Err(Error::NotFinite) }
}

impl Logits {
    /// A token for each row, after the text that it goes on with, chosen on the device as
    /// [`Session::decode_sampled`](super::Session::decode_sampled) does.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is a text for each row, or for a window beyond 32,768 tokens;
    /// [`Error::NotFinite`]; [`Error::Backend`].
    pub fn sample(&self, sampler: &mut Sampler, texts: &[&[u32]]) -> Result<Vec<u32>> {
        let Chosen { tokens, sums, .. } = self.choose(sampler, texts)?;
        let tokens = tokens.to_vec()?;
        check_finite(&sums.to_vec()?)?;
        sampler.seek(sampler.drawn().wrapping_add(texts.len() as u64));
        Ok(tokens)
    }

    /// [`sample`](Self::sample) that waits without blocking.
    ///
    /// # Errors
    /// As [`sample`](Self::sample).
    pub async fn sample_async(&self, sampler: &mut Sampler, texts: &[&[u32]]) -> Result<Vec<u32>> {
        let Chosen { tokens, sums, .. } = self.choose(sampler, texts)?;
        let tokens = tokens.to_vec_async().await?;
        check_finite(&sums.to_vec_async().await?)?;
        sampler.seek(sampler.drawn().wrapping_add(texts.len() as u64));
        Ok(tokens)
    }

    fn choose(&self, sampler: &Sampler, texts: &[&[u32]]) -> Result<Chosen> {
        let Self { ref buffer, rows, vocabulary } = *self;
        if texts.len() != rows {
            let expected = format!("{rows}, one for each row of logits");
            return Err(Error::Argument { what: "the number of texts", expected, got: texts.len() });
        }
        let (backend, sampling, shape) = (buffer.backend(), sampler.sampling(), [rows, vocabulary]);
        sampling.check()?;
        let chosen = Chosen::new(backend, sampling, texts)?;
        chosen.record(backend.as_ref(), sampling, sampler.drawn(), (buffer, shape))?;
        Ok(chosen)
    }
}

/// Tokens chosen after texts, by an operation that isn't captured.
#[derive(Debug)]
pub(super) struct Chosen {
    /// `[rows]` of u32.
    tokens: Buffer,
    /// `[rows]` of f32, which tell whether the logits are finite.
    sums: Buffer,
    /// `[rows, len]` of i32, and `len`: the last tokens of the texts, if they matter.
    window: Option<(Buffer, usize)>,
}

impl Chosen {
    pub(super) fn new(
        backend: &Arc<dyn ComputeBackend>,
        sampling: &Sampling,
        texts: &[&[u32]],
    ) -> Result<Self> {
        let rows = texts.len();
        let len = sampling.window();
        let mut window = vec![NO_TOKEN; rows * len];
        if len > 0 {
            for (row, text) in window.chunks_mut(len).zip(texts) {
                let recent = text.iter().rev().map(|token| token.cast_signed());
                row.iter_mut().zip(recent).for_each(|(place, token)| *place = token);
            }
        }
        let window = (len > 0).then(|| Buffer::from_slice(backend, &window)).transpose()?;
        let (tokens, sums) =
            (Buffer::of(backend, DType::U32, &[rows])?, Buffer::of(backend, DType::F32, &[rows])?);
        Ok(Self { tokens, sums, window: window.map(|window| (window, len)) })
    }

    /// Chooses by the logits, with the random numbers from the place `drawn` on.
    pub(super) fn record(
        &self,
        backend: &dyn ComputeBackend,
        sampling: &Sampling,
        drawn: u64,
        (logits, shape): (&Buffer, [usize; 2]),
    ) -> BackendResult<()> {
        reduce_rows(backend, ReduceOp::LogSumExp, logits, shape, &self.sums)?;
        if sampling.is_greedy() {
            return reduce_rows(backend, ReduceOp::ArgMax, logits, shape, &self.tokens);
        }
        let window = self.window.as_ref().map(|(window, len)| (window.ptr(), *len));
        let desc = sampling.describe([logits.ptr(), self.tokens.ptr()], shape, window);
        backend.sample(&desc.with_offset(drawn))
    }
}
