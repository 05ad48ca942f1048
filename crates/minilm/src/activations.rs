//! The intermediate tensors of a forward pass.

use std::sync::Arc;

use backend_api::desc::HeadLayout;
use backend_api::{BackendResult, ComputeBackend, DType};

use crate::{Batch, Buffer, Config};

/// The tensors that a batch passes through, shared by all layers. Backends keep freed memory for reuse, so
/// making them anew for each batch costs little.
#[derive(Debug)]
pub(crate) struct Activations {
    /// The type of all but `ids`, `mean_weights` and `lengths`.
    pub(crate) dtype: DType,
    /// Sequences in the batch.
    pub(crate) batch: usize,
    /// Tokens in each, padding included.
    pub(crate) seq: usize,
    /// `[batch, seq]` of u32: the token ids.
    pub(crate) ids: Buffer,
    /// `[batch, seq]` of f32: what each token counts in its sequence's mean.
    pub(crate) mean_weights: Buffer,
    /// `[batch]` of u32: tokens in each, without padding.
    pub(crate) lengths: Buffer,
    /// `[batch, seq, hidden]`: what flows from layer to layer.
    pub(crate) hidden: Buffer,
    /// `[batch, seq, hidden]`: what a sublayer adds to `hidden`.
    pub(crate) update: Buffer,
    /// `[batch, seq, 3, hidden]`: each token's query, key and value.
    pub(crate) qkv: Buffer,
    /// `[batch, seq, hidden]`: the heads' outputs side by side.
    pub(crate) context: Buffer,
    /// `[batch, seq, intermediate]`: the inside of a feed-forward network.
    pub(crate) intermediate: Buffer,
    /// Where the heads' queries, keys and values lie in `qkv`.
    pub(crate) qkv_layouts: [HeadLayout; 3],
    /// Where the heads' outputs lie in `context`.
    pub(crate) context_layout: HeadLayout,
}

impl Activations {
    /// Uploads the token ids and lengths of a batch of these sizes.
    pub(crate) fn upload(&self, batch: &Batch) -> BackendResult<()> {
        self.ids.upload(batch.ids())?;
        self.mean_weights.upload(&batch.mean_weights())?;
        self.lengths.upload(batch.lengths())
    }

    /// Allocates the tensors for `batch` and uploads what is known of it.
    pub(crate) fn new(
        backend: &Arc<dyn ComputeBackend>,
        config: &Config,
        dtype: DType,
        batch: &Batch,
    ) -> BackendResult<Self> {
        let hidden = config.hidden_size;
        let tensor = |columns: usize| Buffer::of(backend, dtype, &[batch.size(), batch.seq(), columns]);
        let layout = |offset: usize, row: usize| HeadLayout {
            offset,
            batch: batch.seq() * row,
            head: hidden / config.num_attention_heads,
            token: row,
        };
        Ok(Self {
            dtype,
            batch: batch.size(),
            seq: batch.seq(),
            ids: Buffer::from_slice(backend, batch.ids())?,
            mean_weights: Buffer::from_slice(backend, &batch.mean_weights())?,
            lengths: Buffer::from_slice(backend, batch.lengths())?,
            hidden: tensor(hidden)?,
            update: tensor(hidden)?,
            context: tensor(hidden)?,
            intermediate: tensor(config.intermediate_size)?,
            qkv: tensor(3 * hidden)?,
            qkv_layouts: [0, 1, 2].map(|part| layout(part * hidden, 3 * hidden)),
            context_layout: layout(0, hidden),
        })
    }

    /// Rows of every tensor, padding included.
    pub(crate) const fn tokens(&self) -> usize {
        self.batch * self.seq
    }
}
