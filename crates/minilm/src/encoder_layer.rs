//! One layer of the encoder.

use backend_api::desc::{AttentionDesc, AttentionShape};
use backend_api::{Activation, BackendResult, ComputeBackend};

use crate::activations::Activations;
use crate::checkpoint::Checkpoint;
use crate::layers::{LayerNorm, Linear, Rows};
use crate::{Config, Result};

/// Self-attention and a feed-forward network, each added to its input and normalised.
#[derive(Debug)]
pub(crate) struct EncoderLayer {
    heads: usize,
    head_dim: usize,
    /// Query, key and value projections as one.
    qkv: Linear,
    attention_output: Linear,
    attention_norm: LayerNorm,
    intermediate: Linear,
    output: Linear,
    output_norm: LayerNorm,
}

impl EncoderLayer {
    /// Layer `index` of the checkpoint.
    pub(crate) fn load(checkpoint: &mut Checkpoint<'_>, config: &Config, index: usize) -> Result<Self> {
        let name = |part: &str| format!("encoder.layer.{index}.{part}");
        let (hidden, inner, eps) = (config.hidden_size, config.intermediate_size, config.layer_norm_eps);
        let projections = ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
        let [query, key, value] = projections.each_ref().map(String::as_str);
        Ok(Self {
            heads: config.num_attention_heads,
            head_dim: hidden / config.num_attention_heads,
            qkv: Linear::load_stacked(checkpoint, [query, key, value], hidden, hidden)?,
            attention_output: Linear::load(checkpoint, &name("attention.output.dense"), hidden, hidden)?,
            attention_norm: LayerNorm::load(checkpoint, &name("attention.output.LayerNorm"), hidden, eps)?,
            intermediate: Linear::load(checkpoint, &name("intermediate.dense"), hidden, inner)?,
            output: Linear::load(checkpoint, &name("output.dense"), inner, hidden)?,
            output_norm: LayerNorm::load(checkpoint, &name("output.LayerNorm"), hidden, eps)?,
        })
    }

    /// Replaces `a.hidden` by the layer's output.
    pub(crate) fn forward(&self, backend: &dyn ComputeBackend, a: &Activations) -> BackendResult<()> {
        use Activation::{Gelu, Identity};
        let rows = Rows { backend, count: a.tokens() };
        self.qkv.forward(rows, &a.hidden, &a.qkv, Identity)?;
        self.attend(backend, a)?;
        self.attention_output.forward(rows, &a.context, &a.update, Identity)?;
        self.attention_norm.forward(rows, &a.hidden, Some(&a.update))?;
        self.intermediate.forward(rows, &a.hidden, &a.intermediate, Gelu)?;
        self.output.forward(rows, &a.intermediate, &a.update, Identity)?;
        self.output_norm.forward(rows, &a.hidden, Some(&a.update))
    }

    /// Reads each token's query, key and value where the fused projection left them, and writes the heads'
    /// outputs side by side, as the output projection reads them: strides take the place of every
    /// transposition.
    fn attend(&self, backend: &dyn ComputeBackend, a: &Activations) -> BackendResult<()> {
        let shape = AttentionShape {
            batch: a.batch,
            heads: self.heads,
            seq_q: a.seq,
            seq_kv: a.seq,
            head_dim: self.head_dim,
        };
        let qkv = a.qkv.ptr();
        let [queries, keys, values] = a.qkv_layouts;
        let desc = AttentionDesc::new(a.dtype, qkv, qkv, qkv, a.context.ptr(), shape)
            .with_q_layout(queries)
            .with_k_layout(keys)
            .with_v_layout(values)
            .with_o_layout(a.context_layout)
            .with_key_lengths(a.lengths.ptr());
        backend.attention_ext(&desc)
    }
}
