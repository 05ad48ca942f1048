//! From token ids to the first layer's input.

use backend_api::desc::{BinaryDesc, GatherDesc, IndexShape, TensorDesc};
use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType};

use crate::activations::Activations;
use crate::checkpoint::Checkpoint;
use crate::layers::{LayerNorm, Rows};
use crate::{Batch, Buffer, Config, Result};

/// `norm(word + position + token type)` for each token.
#[derive(Debug)]
pub(crate) struct TokenEmbeddings {
    /// `[vocab, hidden]`.
    words: Buffer,
    /// `[positions, hidden]`, each with the embedding of token type 0 added: single sentences have no other.
    positions: Buffer,
    norm: LayerNorm,
    vocab: usize,
    hidden: usize,
}

impl TokenEmbeddings {
    /// Uploads the tables.
    pub(crate) fn load(checkpoint: &mut Checkpoint<'_>, config: &Config) -> Result<Self> {
        let hidden = config.hidden_size;
        let mut table = |name: &str, rows: usize| {
            checkpoint.tensor(&format!("embeddings.{name}_embeddings.weight"), &[rows, hidden])
        };
        let words = table("word", config.vocab_size)?;
        let positions = table("position", config.max_position_embeddings)?;
        let types = table("token_type", config.type_vocab_size)?;
        let shape = [config.max_position_embeddings, hidden];
        // A shape of one row: only type 0 is read.
        add(checkpoint.backend.as_ref(), checkpoint.dtype, [(&positions, &shape), (&types, &[hidden])])?;
        Ok(Self {
            words,
            positions,
            norm: LayerNorm::load(checkpoint, "embeddings.LayerNorm", hidden, config.layer_norm_eps)?,
            vocab: config.vocab_size,
            hidden,
        })
    }

    /// Writes `activations.hidden`.
    pub(crate) fn forward(
        &self,
        backend: &dyn ComputeBackend,
        batch: &Batch,
        activations: &Activations,
    ) -> BackendResult<()> {
        let (tokens, x, ids) = (activations.tokens(), &activations.hidden, &activations.ids);
        backend.gather(&GatherDesc::new(
            activations.dtype,
            self.words.ptr(),
            ids.ptr(),
            x.ptr(),
            IndexShape { rows: self.vocab, columns: self.hidden, count: tokens },
        ))?;
        // Token i of every sequence is at position i: a broadcast of the table's first rows, not a second
        // look-up.
        let shape = [batch.size(), batch.seq(), self.hidden];
        add(backend, activations.dtype, [(x, &shape), (&self.positions, &shape[1..])])?;
        self.norm.forward(Rows { backend, count: tokens }, x, None)
    }
}

/// `x += y` of two tensors and their shapes, with `y` broadcast to the shape of x.
fn add(backend: &dyn ComputeBackend, dtype: DType, tensors: [(&Buffer, &[usize]); 2]) -> BackendResult<()> {
    let [x, y] = tensors.map(|(buffer, shape)| TensorDesc::packed(buffer.ptr(), dtype, shape));
    backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, x, y, x))
}
