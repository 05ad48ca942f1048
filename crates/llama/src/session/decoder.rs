//! Steps of one token, captured once and replayed, whose tokens and positions stay on the device.

use backend_api::desc::{
    BinaryDesc, CompareDesc, GatherDesc, IndexShape, Matrix, ScatterDesc, TensorDesc, WhereDesc,
};
use backend_api::owned::{Buffer, Graph};
use backend_api::{BackendResult, BinaryOp, CompareOp, ComputeBackend, DType, ReduceOp, ScatterOp};

use super::Session;
use super::chooser::{Choice, Chooser, reduce_rows};
use crate::activations::Activations;
use crate::cache::{Decode, Placement};
use crate::layer::Pass;
use crate::{Model, Result};

/// Positions that share a graph: with one sequence, the new key is looked for among as many rows of the cache,
/// and attention looks at as many keys too many.
pub(super) const PAGE: usize = 256;

/// A captured step of some neighbouring sequences, in the page that they have come to.
#[derive(Debug)]
pub(super) struct Decoder {
    key: Key,
    /// Missing only while it is captured.
    graph: Option<Graph>,
    activations: Activations,
    decode: Decode,
    logits: Buffer,
    /// `[3, slots]` of u32: positions, lengths and rows of pages, which a step adds 1 to.
    counters: Buffer,
    /// `[2, slots]`: the tokens of a step as u32, which become those that follow, and the largest logit of each as f32,
    /// which isn't finite if one is NaN or +∞, or all are −∞.
    chosen: Buffer,
    /// `[2, page_len]`: for each row of the pages what was chosen in the step of the token there.
    history: Buffer,
    window: Option<Window>,
    chooser: Chooser,
}

/// What a graph was captured for.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Key {
    slot: usize,
    slots: usize,
    keys: usize,
    choice: Choice,
}

/// What the mask of a window is made of.
#[derive(Debug)]
struct Window {
    /// `[keys]` of u32: the longest sequence that still sees each key.
    reach: Buffer,
    /// `[slots, keys]` of u32: whether a key is hidden.
    hidden: Buffer,
}

impl Session {
    fn longest(&self, sequence: usize, count: usize) -> usize {
        self.lengths.iter().skip(sequence).take(count).copied().max().unwrap_or(0)
    }

    /// Steps until the longest sequence leaves its page.
    pub(super) fn steps_in_page(&self, sequence: usize, count: usize) -> usize {
        PAGE - self.longest(sequence, count) % PAGE
    }

    /// The decoder for some sequences, captured if it isn't the one at hand.
    pub(super) fn decoder(&mut self, slot: usize, tokens: &[u32], choice: Choice) -> Result<Decoder> {
        let slots = tokens.len();
        let page = self.longest(slot, slots) / PAGE;
        let keys = ((page + 1) * PAGE).min(self.context());
        let key = Key { slot, slots, keys, choice };
        if let Some(decoder) = self.decoder.take().filter(|decoder| decoder.key == key) {
            return Ok(decoder);
        }
        let mut decoder = self.prepared(slot, slots, keys, choice)?;
        decoder.graph =
            Some(Graph::capture(self.model.backend(), |recorded| decoder.record_on(self, recorded))?);
        Ok(decoder)
    }

    /// A decoder whose step isn't captured.
    pub(super) fn prepared(
        &self,
        slot: usize,
        slots: usize,
        keys: usize,
        choice: Choice,
    ) -> BackendResult<Decoder> {
        let page = keys.saturating_sub(1) / PAGE;
        let (model, backend, config) = (&self.model, self.model.backend(), self.model.config());
        // With one sequence, only a page of the cache is searched for the place of the new keys.
        let first_row = slot * self.context() + if slots == 1 { page * PAGE } else { 0 };
        let page_len = if slots == 1 { keys - page * PAGE } else { slots * self.context() };
        let u32s = |count: usize| Buffer::of(backend, DType::U32, &[count]);
        let window = config.window.filter(|&window| window < keys);
        let window = window
            .map(|window| -> BackendResult<Window> {
                let reach: Vec<u32> = (0..keys).map(|key| (key + window) as u32).collect();
                Ok(Window { reach: Buffer::from_slice(backend, &reach)?, hidden: u32s(slots * keys)? })
            })
            .transpose()?;
        let mask = window
            .as_ref()
            .map(|_| Buffer::of(backend, model.precision().operands(), &[slots, keys]))
            .transpose()?;
        let room = |dtype| Buffer::of(backend, dtype, &[slots, 2 * config.kv_width()]);
        let counters = u32s(3 * slots)?;
        let bytes = slots * DType::U32.size();
        let counter = |i: usize| counters.view(i * bytes, bytes);
        let chosen = u32s(2 * slots)?;
        let mut activations = model.activations(slots, &self.cache)?;
        activations.positions = counter(0)?;
        activations.ids = chosen.view(0, bytes)?;
        Ok(Decoder {
            key: Key { slot, slots, keys, choice },
            graph: None,
            activations,
            decode: Decode {
                slot,
                page_rows: counter(2)?,
                lengths: counter(1)?,
                staging: self.cache.format.dtype().map(room).transpose()?,
                pages: self.cache.pages(config, first_row, page_len)?,
                page_len,
                keys,
                mask,
            },
            logits: Buffer::of(backend, DType::F32, &[slots, config.vocabulary])?,
            counters,
            chosen,
            history: u32s(2 * page_len)?,
            window,
            chooser: Chooser::new(backend, choice, slots)?,
        })
    }

    /// Uploads tokens and positions. Returns where in the history the tokens that follow will be.
    pub(super) fn place(&self, decoder: &Decoder, tokens: &[u32]) -> Result<Vec<usize>> {
        let Key { slot, slots, .. } = decoder.key;
        let lengths: Vec<usize> = self.lengths.iter().skip(slot).take(slots).copied().collect();
        let numbers = |of: &dyn Fn(usize, usize) -> usize| -> Vec<u32> {
            lengths.iter().enumerate().map(|(i, &length)| of(i, length) as u32).collect()
        };
        let in_page =
            |i: usize, length: usize| if slots == 1 { length % PAGE } else { i * self.context() + length };
        decoder.activations.ids.upload(tokens)?;
        decoder.activations.positions.upload(&numbers(&|_, length| length))?;
        decoder.decode.lengths.upload(&numbers(&|_, length| length + 1))?;
        decoder.decode.page_rows.upload(&numbers(&in_page))?;
        Ok(lengths.iter().enumerate().map(|(i, &length)| in_page(i, length)).collect())
    }
}

impl Decoder {
    pub(super) fn replay(&self) -> BackendResult<()> {
        self.graph.as_ref().map_or(Ok(()), Graph::replay)
    }

    pub(super) const fn logits(&self) -> &Buffer {
        &self.logits
    }

    /// The tokens of so many steps from a place in the history on, and the largest logit of each.
    pub(super) fn made(&self, start: usize, steps: usize) -> BackendResult<[Buffer; 2]> {
        let bytes = |count: usize| count * size_of::<u32>();
        let part = |i: usize| self.history.view(bytes(i * self.decode.page_len + start), bytes(steps));
        Ok([part(0)?, part(1)?])
    }

    /// Uploads what a choice at random needs of texts whose last tokens go to the positions `lengths`.
    pub(super) fn place_texts(&self, drawn: u64, texts: &[Vec<u32>], lengths: &[usize]) -> BackendResult<()> {
        match &self.chooser {
            Chooser::Caller | Chooser::Greedy => Ok(()),
            Chooser::Sampled(draw) => draw.place(drawn, texts, lengths),
        }
    }

    /// The operations of a step of `session`, on a backend that has its memory.
    pub(super) fn record_on(&self, session: &Session, backend: &dyn ComputeBackend) -> BackendResult<()> {
        let pass = session.pass(&self.activations, Placement::Decode(&self.decode));
        self.record(&session.model, &Pass { backend, ..pass })
    }

    /// The operations of a step. One that chooses tokens leaves everything ready for the next.
    fn record(&self, model: &Model, pass: &Pass<'_>) -> BackendResult<()> {
        let Key { slots, .. } = self.key;
        let (backend, a) = (pass.backend, &self.activations);
        self.hide(backend)?;
        model.forward(pass)?;
        let vocabulary = pass.config.vocabulary;
        let logits = Matrix::new(self.logits.ptr(), DType::F32, vocabulary);
        model.logits(pass, slots, &a.x, logits)?;
        let (shape, bytes) = ([slots, vocabulary], slots * DType::F32.size());
        let largest = self.chosen.view(bytes, bytes)?;
        match &self.chooser {
            Chooser::Caller => return model.cap(backend, slots, logits),
            Chooser::Greedy => {
                reduce_rows(backend, ReduceOp::ArgMax, &self.logits, shape, &a.ids)?;
                // Of a row with NaN, the place of that.
                let of_row = IndexShape { rows: vocabulary, columns: 1, count: 1 };
                let [table, indices, output] = [&self.logits, &a.ids, &largest].map(Buffer::ptr);
                let taken = GatherDesc::new(DType::F32, table, indices, output, of_row);
                backend.gather(&taken.with_outer(slots).with_per_element())?;
            }
            Chooser::Sampled(draw) => {
                model.cap(backend, slots, logits)?;
                draw.record(backend, &self.logits, shape, [&a.ids, &a.positions])?;
                reduce_rows(backend, ReduceOp::Max, &self.logits, shape, &largest)?;
            }
        }
        let shape = IndexShape { rows: self.decode.page_len, columns: 1, count: slots };
        let (history, rows, chosen) = (self.history.ptr(), self.decode.page_rows.ptr(), self.chosen.ptr());
        let assign = ScatterDesc::new(ScatterOp::Assign, DType::U32, history, rows, chosen, shape);
        backend.scatter(&assign.with_outer(2))?;
        let shape = [3 * slots];
        let counters = TensorDesc::packed(self.counters.ptr(), DType::U32, &shape);
        backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, counters, 1.0, counters))
    }

    /// Fills the mask of layers with a window.
    fn hide(&self, backend: &dyn ComputeBackend) -> BackendResult<()> {
        let (Some(window), Some(mask)) = (&self.window, &self.decode.mask) else { return Ok(()) };
        let Key { slots, keys, .. } = self.key;
        let (shape, row, column) = ([slots, keys], [1, keys], [slots, 1]);
        let reach = TensorDesc::packed(window.reach.ptr(), DType::U32, &row);
        let lengths = TensorDesc::packed(self.decode.lengths.ptr(), DType::U32, &column);
        let hidden = TensorDesc::packed(window.hidden.ptr(), DType::U32, &shape);
        backend.compare(&CompareDesc::new(CompareOp::Lt, reach, lengths, hidden))?;
        let mask = TensorDesc::packed(mask.ptr(), self.activations.dtype, &shape);
        backend.where_cond(&WhereDesc::new(hidden, f64::NEG_INFINITY, 0.0, mask))
    }
}
