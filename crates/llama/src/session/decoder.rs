//! Decoding: steps of one token, captured once and replayed, whose tokens and positions stay on the device.

use backend_api::desc::{
    BinaryDesc, CompareDesc, IndexShape, ReduceDesc, ScatterDesc, TensorDesc, WhereDesc,
};
use backend_api::owned::{Buffer, Graph};
use backend_api::{BackendResult, BinaryOp, CompareOp, ComputeBackend, DType, ReduceOp, ScatterOp};

use super::Session;
use crate::activations::Activations;
use crate::cache::{Decode, Placement};
use crate::layer::Pass;
use crate::linear::Rows;
use crate::{Error, Model, Result};

/// Positions that share a graph: with one sequence, the new key is looked for among as many rows of the cache,
/// and attention looks at as many keys too many.
const PAGE: usize = 256;

/// A captured step of some neighbouring sequences, in the page that they have come to.
#[derive(Debug)]
pub(super) struct Decoder {
    key: Key,
    /// Missing only while it is captured.
    graph: Option<Graph>,
    activations: Activations,
    decode: Decode,
    logits: Buffer,
    normed: Buffer,
    /// For each row of the pages, the token that follows the one there: i32.
    history: Buffer,
    window: Option<Window>,
}

/// What a graph was captured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    slot: usize,
    slots: usize,
    keys: usize,
    greedy: bool,
}

/// What the mask of a window is made of.
#[derive(Debug)]
struct Window {
    /// `[keys]` of u32: the longest sequence that still sees each key.
    reach: Buffer,
    /// `[slots, keys]` of u32: whether a key is hidden.
    hidden: Buffer,
}

/// Greedy texts in the making.
#[derive(Debug)]
struct Greedy {
    /// The token of each sequence that is added next.
    last: Vec<u32>,
    /// What follows the first ones.
    made: Vec<Vec<u32>>,
    /// Tokens that each still gets.
    left: usize,
}

impl Greedy {
    fn new(first: &[u32], count: usize) -> Self {
        Self { last: first.to_vec(), made: vec![Vec::new(); first.len()], left: count }
    }
}

impl Session {
    /// Adds `first[i]` to sequence `sequence + i`, and then always the most probable token, until each has
    /// `count` tokens more. Returns the most probable token after each of those, `count` for each sequence:
    /// the last one hasn't been added.
    ///
    /// Tokens go from one step to the next on the device, and are read once. A call that fails adds nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] for a sequence that isn't there, or a token outside the vocabulary;
    /// [`Error::TooLong`]; [`Error::Backend`].
    pub fn decode_greedy(&mut self, sequence: usize, first: &[u32], count: usize) -> Result<Vec<Vec<u32>>> {
        let before = self.lengths.clone();
        let made = self.greedy(sequence, first, count);
        // Pages that were made before the failing one.
        made.inspect_err(|_| self.lengths = before)
    }

    fn greedy(&mut self, sequence: usize, first: &[u32], count: usize) -> Result<Vec<Vec<u32>>> {
        let mut text = Greedy::new(first, count);
        while let Some((decoder, made)) = self.replay_greedy(sequence, &text)? {
            let made = made.iter().map(Buffer::to_vec).collect::<BackendResult<_>>()?;
            self.keep_greedy(sequence, decoder, &mut text, made);
        }
        Ok(text.made)
    }

    /// [`decode_greedy`](Self::decode_greedy) that waits without blocking.
    ///
    /// # Errors
    /// As [`decode_greedy`](Self::decode_greedy).
    pub async fn decode_greedy_async(
        &mut self,
        sequence: usize,
        first: &[u32],
        count: usize,
    ) -> Result<Vec<Vec<u32>>> {
        let before = self.lengths.clone();
        let made = self.greedy_async(sequence, first, count).await;
        made.inspect_err(|_| self.lengths = before)
    }

    async fn greedy_async(&mut self, sequence: usize, first: &[u32], count: usize) -> Result<Vec<Vec<u32>>> {
        let mut text = Greedy::new(first, count);
        while let Some((decoder, buffers)) = self.replay_greedy(sequence, &text)? {
            let mut made = Vec::with_capacity(buffers.len());
            for buffer in &buffers {
                made.push(buffer.to_vec_async().await?);
            }
            self.keep_greedy(sequence, decoder, &mut text, made);
        }
        Ok(text.made)
    }

    /// Steps within a page; the tokens that they make are in the buffers, one for each sequence. `None` if there
    /// are enough.
    fn replay_greedy(&mut self, sequence: usize, text: &Greedy) -> Result<Option<(Decoder, Vec<Buffer>)>> {
        let Greedy { last, left, .. } = text;
        self.check_decode(sequence, last, *left)?;
        let steps = (*left).min(self.steps_in_page(sequence, last.len()));
        if steps == 0 || last.is_empty() {
            return Ok(None);
        }
        let decoder = self.decoder(sequence, last, true)?;
        let starts = self.place(&decoder, last)?;
        for _ in 0..steps {
            decoder.replay()?;
        }
        let bytes = |count: usize| count * size_of::<u32>();
        let made = starts.iter().map(|&start| decoder.history.view(bytes(start), bytes(steps)));
        let made = made.collect::<BackendResult<_>>()?;
        Ok(Some((decoder, made)))
    }

    /// Takes over what steps have made.
    fn keep_greedy(&mut self, sequence: usize, decoder: Decoder, text: &mut Greedy, made: Vec<Vec<u32>>) {
        let steps = made.first().map_or(0, Vec::len);
        self.finish_decode(sequence, made.len(), steps, decoder);
        text.left -= steps;
        for ((all, last), new) in text.made.iter_mut().zip(&mut text.last).zip(made) {
            *last = new.last().copied().unwrap_or_default();
            all.extend(new);
        }
    }

    /// Adds `tokens[i]` to sequence `sequence + i`, and returns the logits of the tokens that follow,
    /// `[sequences, vocabulary]`. It is [`step`](Session::step) of one token each, captured and replayed.
    ///
    /// # Errors
    /// As [`decode_greedy`](Self::decode_greedy).
    pub fn decode(&mut self, sequence: usize, tokens: &[u32]) -> Result<Vec<f32>> {
        let Some(decoder) = self.replay_once(sequence, tokens)? else { return Ok(Vec::new()) };
        let logits = decoder.logits.to_vec()?;
        self.finish_decode(sequence, tokens.len(), 1, decoder);
        Ok(logits)
    }

    /// [`decode`](Self::decode) that waits without blocking.
    ///
    /// # Errors
    /// As [`decode_greedy`](Self::decode_greedy).
    pub async fn decode_async(&mut self, sequence: usize, tokens: &[u32]) -> Result<Vec<f32>> {
        let Some(decoder) = self.replay_once(sequence, tokens)? else { return Ok(Vec::new()) };
        let logits = decoder.logits.to_vec_async().await?;
        self.finish_decode(sequence, tokens.len(), 1, decoder);
        Ok(logits)
    }

    fn replay_once(&mut self, sequence: usize, tokens: &[u32]) -> Result<Option<Decoder>> {
        self.check_decode(sequence, tokens, 1)?;
        if tokens.is_empty() {
            return Ok(None);
        }
        let decoder = self.decoder(sequence, tokens, false)?;
        self.place(&decoder, tokens)?;
        decoder.replay()?;
        Ok(Some(decoder))
    }

    fn finish_decode(&mut self, sequence: usize, sequences: usize, steps: usize, decoder: Decoder) {
        self.decoder = Some(decoder);
        for i in 0..sequences {
            self.advance(sequence + i, steps);
        }
    }

    fn check_decode(&self, sequence: usize, tokens: &[u32], count: usize) -> Result<()> {
        let end = sequence.saturating_add(tokens.len());
        let Some(lengths) = self.lengths.get(sequence..end) else {
            let expected = format!("at most {}", self.lengths.len());
            return Err(Error::Argument { what: "the end of the sequences", expected, got: end });
        };
        self.check_tokens(tokens)?;
        match lengths.iter().map(|length| length.saturating_add(count)).max() {
            Some(tokens) if tokens > self.context() => {
                Err(Error::TooLong { tokens, capacity: self.context() })
            }
            _ => Ok(()),
        }
    }

    fn longest(&self, sequence: usize, count: usize) -> usize {
        self.lengths.iter().skip(sequence).take(count).copied().max().unwrap_or(0)
    }

    /// Steps until the longest sequence leaves its page.
    fn steps_in_page(&self, sequence: usize, count: usize) -> usize {
        PAGE - self.longest(sequence, count) % PAGE
    }

    /// The decoder for some sequences, captured if it isn't the one at hand.
    fn decoder(&mut self, slot: usize, tokens: &[u32], greedy: bool) -> Result<Decoder> {
        let slots = tokens.len();
        let page = self.longest(slot, slots) / PAGE;
        let keys = ((page + 1) * PAGE).min(self.context());
        let key = Key { slot, slots, keys, greedy };
        if let Some(decoder) = self.decoder.take().filter(|decoder| decoder.key == key) {
            return Ok(decoder);
        }
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
        let mask = window.as_ref().map(|_| Buffer::of(backend, model.dtype(), &[slots, keys])).transpose()?;
        let mut decoder = Decoder {
            key,
            graph: None,
            activations: model.activations(slots)?,
            decode: Decode {
                slot,
                page_rows: u32s(slots)?,
                lengths: u32s(slots)?,
                staging: Buffer::of(backend, self.cache.dtype, &[slots, 2 * config.kv_width()])?,
                pages: self.cache.pages(config, first_row, page_len)?,
                page_len,
                keys,
                mask,
            },
            logits: Buffer::of(backend, DType::F32, &[slots, config.vocabulary])?,
            normed: Buffer::of(backend, model.dtype(), &[slots, config.hidden])?,
            history: u32s(page_len)?,
            window,
        };
        decoder.graph = Some(Graph::capture(backend, |recorded| {
            let pass = self.pass(&decoder.activations, Placement::Decode(&decoder.decode));
            decoder.record(model, &Pass { backend: recorded, ..pass })
        })?);
        Ok(decoder)
    }

    /// Uploads tokens and positions. Returns where in the history the tokens that follow will be.
    fn place(&self, decoder: &Decoder, tokens: &[u32]) -> Result<Vec<usize>> {
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
    fn replay(&self) -> BackendResult<()> {
        self.graph.as_ref().map_or(Ok(()), Graph::replay)
    }

    /// The operations of a step. A greedy one leaves everything ready for the next.
    fn record(&self, model: &Model, pass: &Pass<'_>) -> BackendResult<()> {
        let Key { slots, greedy, .. } = self.key;
        let (backend, a) = (pass.backend, &self.activations);
        self.hide(backend)?;
        model.forward(pass)?;
        let vocabulary = pass.config.vocabulary;
        let logits = Rows::packed(&self.logits, DType::F32, vocabulary);
        model.logits(pass, slots, [&a.x, &self.normed], logits)?;
        if !greedy {
            return model.cap(backend, slots, logits);
        }
        let shape = [slots, vocabulary];
        let input = TensorDesc::packed(self.logits.ptr(), DType::F32, &shape);
        backend.reduce_ext(&ReduceDesc::new(ReduceOp::ArgMax, input, &[1], a.ids.ptr()))?;
        let shape = IndexShape { rows: self.decode.page_len, columns: 1, count: slots };
        let (history, rows, ids) = (self.history.ptr(), self.decode.page_rows.ptr(), a.ids.ptr());
        backend.scatter(&ScatterDesc::new(ScatterOp::Assign, DType::U32, history, rows, ids, shape))?;
        for counter in [&a.positions, &self.decode.lengths, &self.decode.page_rows] {
            let shape = [slots];
            let counter = TensorDesc::packed(counter.ptr(), DType::U32, &shape);
            backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, counter, 1.0, counter))?;
        }
        Ok(())
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
