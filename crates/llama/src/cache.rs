//! The keys and values of earlier tokens.

use std::ops::Range;
use std::sync::Arc;

use backend_api::desc::{
    AttentionDesc, AttentionMask, AttentionShape, CopyDesc, HeadLayout, IndexShape, ScatterDesc, TensorDesc,
};
use backend_api::owned::Buffer;
use backend_api::{BackendResult, ComputeBackend, DType, ScatterOp};

use crate::Config;
use crate::activations::Activations;
use crate::linear::Rows;

/// Keys and values of every layer for some sequences of at most `capacity` tokens, which never move.
///
/// A layer's is `[slots, capacity, 2, kv_heads, head_dim]`: a token's keys, then its values.
#[derive(Debug)]
pub(crate) struct Cache {
    layers: Vec<Buffer>,
    pub(crate) dtype: DType,
    pub(crate) capacity: usize,
}

/// Neighbouring rows that go on with one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The first of the rows.
    pub(crate) first: usize,
    /// How many there are.
    pub(crate) rows: usize,
    /// The sequence.
    pub(crate) slot: usize,
    /// The position of the first one.
    pub(crate) position: usize,
}

/// One token for each of some neighbouring slots, whose positions lie on the device.
#[derive(Debug)]
pub(crate) struct Decode {
    /// The first of the slots.
    pub(crate) slot: usize,
    /// `[slots]` of u32: where in the pages the new keys and values go.
    pub(crate) page_rows: Buffer,
    /// `[slots]` of u32: tokens in each sequence, with the one of this step.
    pub(crate) lengths: Buffer,
    /// Room for the new keys and values in the cache's type.
    pub(crate) staging: Buffer,
    /// The rows of each layer that the new keys and values may go to.
    pub(crate) pages: Vec<Buffer>,
    /// How many these are.
    pub(crate) page_len: usize,
    /// Keys that are looked at: all that a sequence may have.
    pub(crate) keys: usize,
    /// `[slots, keys]` of the activations' type: −∞ for keys that a window hides.
    pub(crate) mask: Option<Buffer>,
}

/// Where a pass's rows belong.
#[derive(Debug)]
pub(crate) enum Placement<'a> {
    /// Known to the host.
    Runs(&'a [Run]),
    /// Known to the device alone.
    Decode(&'a Decode),
}

impl Cache {
    pub(crate) fn new(
        backend: &Arc<dyn ComputeBackend>,
        config: &Config,
        dtype: DType,
        slots: usize,
        capacity: usize,
    ) -> BackendResult<Self> {
        let shape = [slots, capacity, 2, config.kv_width()];
        let layers =
            (0..config.layers).map(|_| Buffer::of(backend, dtype, &shape)).collect::<BackendResult<_>>()?;
        Ok(Self { layers, dtype, capacity })
    }

    /// Room for a token's keys and values in rows `first` to `first + len` of the cache of each layer.
    pub(crate) fn pages(&self, config: &Config, first: usize, len: usize) -> BackendResult<Vec<Buffer>> {
        let row = 2 * config.kv_width() * self.dtype.size();
        self.layers.iter().map(|layer| layer.view(first * row, len * row)).collect()
    }

    /// Appends the keys and values of `a` to a layer's, and writes what its queries attend to to `a.context`.
    pub(crate) fn attend(
        &self,
        backend: &dyn ComputeBackend,
        config: &Config,
        layer: usize,
        a: &Activations,
        placement: &Placement<'_>,
    ) -> BackendResult<()> {
        // Each layer of the model has one here.
        let Some(cache) = self.layers.get(layer) else { return Ok(()) };
        match placement {
            Placement::Runs(runs) => {
                for run in *runs {
                    let first = (run.slot * self.capacity + run.position) * 2 * config.kv_width();
                    self.append(backend, config, a, run.first..run.first + run.rows, (cache, first))?;
                }
                for run in *runs {
                    self.attend_run(backend, config, layer, cache, a, run)?;
                }
                Ok(())
            }
            Placement::Decode(decode) => self.decode(backend, config, layer, cache, a, decode),
        }
    }

    /// Copies the keys and values of some rows to the cache or to staging, in the cache's type.
    fn append(
        &self,
        backend: &dyn ComputeBackend,
        config: &Config,
        a: &Activations,
        rows: Range<usize>,
        (target, first): (&Buffer, usize),
    ) -> BackendResult<()> {
        let width = config.kv_width();
        let to_strides = [2 * width, 1];
        let copy = |part: Rows, columns: usize, offset: usize| {
            let (shape, strides) = ([rows.len(), columns], [part.row, 1]);
            let from = TensorDesc::strided(part.ptr, part.dtype, &shape, &strides);
            let to = TensorDesc::strided(target.ptr(), self.dtype, &shape, &to_strides);
            let from = from.with_offset(part.offset + rows.start * part.row);
            backend.copy(&CopyDesc::new(from, to.with_offset(first + offset)))
        };
        let [_, keys, values] = a.parts;
        if a.packed.is_none() {
            // Keys and values lie side by side.
            return copy(keys, 2 * width, 0);
        }
        copy(keys, width, 0)?;
        copy(values, width, width)
    }

    fn attend_run(
        &self,
        backend: &dyn ComputeBackend,
        config: &Config,
        layer: usize,
        cache: &Buffer,
        a: &Activations,
        run: &Run,
    ) -> BackendResult<()> {
        let shape = AttentionShape {
            batch: 1,
            heads: config.heads,
            seq_q: run.rows,
            seq_kv: run.position + run.rows,
            head_dim: config.head_dim,
        };
        let token = |rows: Rows| HeadLayout {
            offset: rows.offset + run.first * rows.row,
            batch: 0,
            head: config.head_dim,
            token: rows.row,
        };
        let context = Rows::packed(&a.context, a.dtype, config.query_width());
        let mut desc = self
            .desc(config, cache, a, shape, run.slot)
            .with_q_layout(token(a.parts[0]))
            .with_o_layout(token(context))
            .with_causal(true);
        desc.window = config.window_of(layer);
        backend.attention_ext(&desc)
    }

    fn decode(
        &self,
        backend: &dyn ComputeBackend,
        config: &Config,
        layer: usize,
        cache: &Buffer,
        a: &Activations,
        decode: &Decode,
    ) -> BackendResult<()> {
        let Some(page) = decode.pages.get(layer) else { return Ok(()) };
        let (source, source_dtype) = match &a.kv_row {
            Some(row) => (row, a.dtype),
            None => {
                self.append(backend, config, a, 0..a.rows, (&decode.staging, 0))?;
                (&decode.staging, self.dtype)
            }
        };
        let shape = IndexShape { rows: decode.page_len, columns: 2 * config.kv_width(), count: a.rows };
        let (indices, assign) = (decode.page_rows.ptr(), ScatterOp::Assign);
        let append = ScatterDesc::new(assign, self.dtype, page.ptr(), indices, source.ptr(), shape);
        backend.scatter(&append.with_source_dtype(source_dtype))?;

        let shape = AttentionShape {
            batch: a.rows,
            heads: config.heads,
            seq_q: 1,
            seq_kv: decode.keys,
            head_dim: config.head_dim,
        };
        let token = |rows: Rows| HeadLayout {
            offset: rows.offset,
            batch: rows.row,
            head: config.head_dim,
            token: rows.row,
        };
        let context = Rows::packed(&a.context, a.dtype, config.query_width());
        let mut desc = self
            .desc(config, cache, a, shape, decode.slot)
            .with_q_layout(token(a.parts[0]))
            .with_o_layout(token(context))
            .with_key_lengths(decode.lengths.ptr());
        if config.window_of(layer).is_some_and(|window| window < decode.keys) {
            desc.mask = decode.mask.as_ref().map(|mask| AttentionMask {
                ptr: mask.ptr(),
                batch_stride: decode.keys,
                head_stride: 0,
                query_stride: 0,
            });
        }
        backend.attention_ext(&desc)
    }

    /// Attention over the sequences from `slot` on.
    fn desc(
        &self,
        config: &Config,
        cache: &Buffer,
        a: &Activations,
        shape: AttentionShape,
        slot: usize,
    ) -> AttentionDesc {
        let row = 2 * config.kv_width();
        let keys = HeadLayout {
            offset: slot * self.capacity * row,
            batch: self.capacity * row,
            head: config.head_dim,
            token: row,
        };
        let values = HeadLayout { offset: keys.offset + config.kv_width(), ..keys };
        let [q, ..] = a.parts;
        AttentionDesc::new(a.dtype, q.ptr, cache.ptr(), cache.ptr(), a.context.ptr(), shape)
            .with_kv_format(self.dtype.into())
            .with_kv_heads(config.kv_heads)
            .with_scale(config.attention_scale)
            .with_softcap(config.attention_softcap)
            .with_k_layout(keys)
            .with_v_layout(values)
    }
}
