//! The keys and values of earlier tokens.

use std::ops::Range;
use std::sync::Arc;

use backend_api::desc::{
    AttentionDesc, AttentionMask, AttentionShape, CopyDesc, HeadLayout, IndexShape, Matrix, QuantizeRowsDesc,
    ScatterDesc, TensorDesc,
};
use backend_api::kv::KvFormat;
use backend_api::owned::Buffer;
use backend_api::{BackendResult, ComputeBackend, DType, ScatterOp};

use crate::Config;
use crate::activations::Activations;

/// Keys and values of every layer for some sequences of at most `capacity` tokens, which never move.
///
/// A layer's is `[slots, capacity, 2, kv_heads, head_dim]`: a token's keys, then its values.
#[derive(Debug)]
pub(crate) struct Cache {
    layers: Vec<Buffer>,
    pub(crate) format: KvFormat,
    pub(crate) capacity: usize,
    slots: usize,
    /// Whether `rope_append` takes all slots of a layer in one launch, of numbers that the device can bind, whose rows u32 counts.
    pub(crate) fits_append: bool,
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
    /// Keys and values that `rope_append` can't take, packed in the type of a floating-point cache.
    pub(crate) staging: Option<Buffer>,
    /// The rows of each layer that the new keys and values may go to.
    pub(crate) pages: Vec<Buffer>,
    /// How many these are.
    pub(crate) page_len: usize,
    /// Keys that are looked at: all that a sequence may have.
    pub(crate) keys: usize,
    /// `[slots, keys]` of the activations' type: −∞ for keys that a window hides.
    pub(crate) mask: Option<Buffer>,
}

/// The heads of a layer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads<'a> {
    /// The layer's index.
    pub(crate) layer: usize,
    /// `[heads]` of f32: what joins the denominators of their softmaxes, if the layer has that.
    pub(crate) sinks: Option<&'a Buffer>,
}

/// Rows of a layer's cache that `rope_append` may write.
#[derive(Debug)]
pub(crate) struct AppendTarget<'a> {
    pub(crate) cache: Matrix,
    /// How many there are.
    pub(crate) rows: usize,
    /// To which of them new rows go.
    pub(crate) indices: &'a Buffer,
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
        format: KvFormat,
        slots: usize,
        capacity: usize,
    ) -> BackendResult<Self> {
        let row = format.bytes("cache", 2 * config.kv_width())?;
        let layers = (0..config.layers).map(|_| Buffer::new::<u8>(backend, &[slots, capacity, row]));
        let layers = layers.collect::<BackendResult<_>>()?;
        let rows = slots * capacity;
        let fits_append = format.dtype().is_some()
            && u32::try_from(rows).is_ok()
            && rows * row <= backend.capabilities()?.max_binding_bytes;
        Ok(Self { layers, format, capacity, slots, fits_append })
    }

    /// Room for a token's keys and values in rows `first` to `first + len` of the cache of each layer.
    pub(crate) fn pages(&self, config: &Config, first: usize, len: usize) -> BackendResult<Vec<Buffer>> {
        let row = self.format.bytes("cache", 2 * config.kv_width())?;
        self.layers.iter().map(|layer| layer.view(first * row, len * row)).collect()
    }

    /// Where the rows of some runs go in a layer's rows, of all slots, if `rope_append` can take these.
    pub(crate) fn rows_of(&self, runs: &[Run]) -> Option<Vec<u32>> {
        let first = |run: &Run| run.slot * self.capacity + run.position;
        let rows = runs.iter().flat_map(|run| (first(run)..first(run) + run.rows).map(|row| row as u32));
        self.fits_append.then(|| rows.collect())
    }

    /// The rows of a layer that `rope_append` may write, if the cache is floating-point and the indices of new rows lie on
    /// the device.
    pub(crate) fn rope_append_target<'a>(
        &'a self,
        config: &Config,
        layer: usize,
        a: &'a Activations,
        placement: &Placement<'a>,
    ) -> Option<AppendTarget<'a>> {
        let (buffer, rows, indices) = match placement {
            Placement::Runs(_) => {
                let indices = a.cache_rows.as_ref().filter(|_| self.fits_append)?;
                (self.layers.get(layer)?, self.slots * self.capacity, indices)
            }
            Placement::Decode(decode) => (decode.pages.get(layer)?, decode.page_len, &decode.page_rows),
        };
        let cache = Matrix::new(buffer.ptr(), self.format.dtype()?, 2 * config.kv_width());
        Some(AppendTarget { cache, rows, indices })
    }

    /// Appends the keys and values of `a` to a layer's.
    pub(crate) fn append(
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
            Placement::Runs(runs) => runs.iter().try_for_each(|run| {
                let first = (run.slot * self.capacity + run.position) * 2 * config.kv_width();
                let rows = run.first..run.first + run.rows;
                match self.format {
                    KvFormat::Float(dtype) => copy_rows(backend, config, a, rows, (cache, dtype, first)),
                    _ => quantize_rows(backend, config, a, rows, Place::rows(cache, first, run.rows)),
                }
            }),
            Placement::Decode(decode) => {
                let Some(page) = decode.pages.get(layer) else { return Ok(()) };
                self.append_by_index(backend, config, a, decode, page)
            }
        }
    }

    /// Writes what the queries of `a` attend to in a layer's keys and values to `a.context`.
    pub(crate) fn attend(
        &self,
        backend: &dyn ComputeBackend,
        config: &Config,
        of: Heads<'_>,
        a: &Activations,
        placement: &Placement<'_>,
    ) -> BackendResult<()> {
        let Some(cache) = self.layers.get(of.layer) else { return Ok(()) };
        match placement {
            Placement::Runs(runs) => runs.iter().try_for_each(|run| {
                let extents = [1, run.rows, run.position + run.rows];
                let mut desc =
                    self.desc(config, of, cache, a, extents, (run.slot, run.first)).with_causal(true);
                desc.window = config.window_of(of.layer);
                backend.attention_ext(&desc)
            }),
            Placement::Decode(decode) => {
                let mut desc = self
                    .desc(config, of, cache, a, [a.rows, 1, decode.keys], (decode.slot, 0))
                    .with_key_lengths(decode.lengths.ptr());
                if config.window_of(of.layer).is_some_and(|window| window < decode.keys) {
                    desc.mask = decode.mask.as_ref().map(|mask| AttentionMask {
                        ptr: mask.ptr(),
                        batch_stride: decode.keys,
                        head_stride: 0,
                        query_stride: 0,
                    });
                }
                backend.attention_ext(&desc)
            }
        }
    }

    /// Appends the new keys and values of each sequence, at positions that lie on the device.
    fn append_by_index(
        &self,
        backend: &dyn ComputeBackend,
        config: &Config,
        a: &Activations,
        decode: &Decode,
        page: &Buffer,
    ) -> BackendResult<()> {
        let Some((staging, dtype)) = decode.staging.as_ref().zip(self.format.dtype()) else {
            let indices = Some(&decode.page_rows);
            let place = Place { cache: page, first: 0, rows: decode.page_len, indices };
            return quantize_rows(backend, config, a, 0..a.rows, place);
        };
        copy_rows(backend, config, a, 0..a.rows, (staging, dtype, 0))?;
        let shape = IndexShape { rows: decode.page_len, columns: 2 * config.kv_width(), count: a.rows };
        let (indices, assign) = (decode.page_rows.ptr(), ScatterOp::Assign);
        backend.scatter(&ScatterDesc::new(assign, dtype, page.ptr(), indices, staging.ptr(), shape))
    }

    /// Attention of a layer, of rows of the activations from `first` on over the sequences from `slot` on.
    fn desc(
        &self,
        config: &Config,
        of: Heads<'_>,
        cache: &Buffer,
        a: &Activations,
        [batch, seq_q, seq_kv]: [usize; 3],
        (slot, first): (usize, usize),
    ) -> AttentionDesc {
        let shape = AttentionShape { batch, heads: config.heads, seq_q, seq_kv, head_dim: config.head_dim };
        // Either the batches or the queries are rows: there is one of the other.
        let by_row = |rows: Matrix| HeadLayout {
            offset: rows.offset + first * rows.ld,
            batch: rows.ld,
            head: config.head_dim,
            token: rows.ld,
        };
        let context = Matrix::new(a.context.ptr(), a.dtype, config.query_width());
        let row = 2 * config.kv_width();
        let keys = HeadLayout {
            offset: slot * self.capacity * row,
            batch: self.capacity * row,
            head: config.head_dim,
            token: row,
        };
        let values = HeadLayout { offset: keys.offset + config.kv_width(), ..keys };
        let [q, ..] = a.parts;
        let mut desc = AttentionDesc::new(a.dtype, q.ptr, cache.ptr(), cache.ptr(), a.context.ptr(), shape)
            .with_kv_format(self.format)
            .with_kv_heads(config.kv_heads)
            .with_scale(config.attention_scale)
            .with_softcap(config.attention_softcap)
            .with_q_layout(by_row(q))
            .with_k_layout(keys)
            .with_v_layout(values)
            .with_o_layout(by_row(context));
        desc.sinks = of.sinks.map(Buffer::ptr);
        desc
    }
}

/// Rows of a cache of blocks.
struct Place<'a> {
    cache: &'a Buffer,
    /// Elements before the first of them.
    first: usize,
    rows: usize,
    /// To which of them new rows go; in order if `None`.
    indices: Option<&'a Buffer>,
}

impl<'a> Place<'a> {
    const fn rows(cache: &'a Buffer, first: usize, rows: usize) -> Self {
        Self { cache, first, rows, indices: None }
    }
}

/// The columns of keys and values in the activations, and where in a row of the cache they go: together where they lie
/// side by side.
fn columns(config: &Config, a: &Activations) -> impl Iterator<Item = (Matrix, usize, usize)> {
    let width = config.kv_width();
    let [_, keys, values] = a.parts;
    let together = (keys, 2 * width, 0);
    let apart = [(keys, width, 0), (values, width, width)];
    let is_together = a.is_stacked;
    apart.into_iter().filter(move |_| !is_together).chain(is_together.then_some(together))
}

/// Copies the keys and values of some rows to a cache of numbers, from an element on, or to staging.
fn copy_rows(
    backend: &dyn ComputeBackend,
    config: &Config,
    a: &Activations,
    rows: Range<usize>,
    (target, dtype, first): (&Buffer, DType, usize),
) -> BackendResult<()> {
    let to_strides = [2 * config.kv_width(), 1];
    columns(config, a).try_for_each(|(part, columns, offset)| {
        let (shape, strides) = ([rows.len(), columns], [part.ld, 1]);
        let from = TensorDesc::strided(part.ptr, part.dtype, &shape, &strides);
        let to = TensorDesc::strided(target.ptr(), dtype, &shape, &to_strides);
        let from = from.with_offset(part.offset + rows.start * part.ld);
        backend.copy(&CopyDesc::new(from, to.with_offset(first + offset)))
    })
}

/// Quantises the keys and values of some rows into a cache of blocks.
fn quantize_rows(
    backend: &dyn ComputeBackend,
    config: &Config,
    a: &Activations,
    rows: Range<usize>,
    to: Place<'_>,
) -> BackendResult<()> {
    columns(config, a).try_for_each(|(part, columns, offset)| {
        let from = part.with_offset(part.offset + rows.start * part.ld);
        let mut desc = QuantizeRowsDesc::new(from, to.cache.ptr(), to.rows, columns, rows.len())
            .with_offset(to.first + offset)
            .with_stride(2 * config.kv_width());
        desc.indices = to.indices.map(Buffer::ptr);
        backend.quantize_rows(&desc)
    })
}
