//! The forward pass of a BERT encoder with mean pooling.
//!
//! Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2018;
//! mean pooling as in Reimers and Gurevych, "Sentence-BERT", 2019.

use std::sync::Arc;

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{BackendResult, ComputeBackend, DType};

use crate::activations::Activations;
use crate::checkpoint::Checkpoint;
use crate::encoder_layer::EncoderLayer;
use crate::token_embeddings::TokenEmbeddings;
use crate::{Batch, Buffer, Config, Error, Result};

/// The weights on a device, and what is computed with them there.
#[derive(Debug)]
pub struct Model {
    backend: Arc<dyn ComputeBackend>,
    config: Config,
    embeddings: TokenEmbeddings,
    layers: Vec<EncoderLayer>,
}

impl Model {
    /// Uploads a checkpoint: `safetensors` and `config` are the contents of `model.safetensors` and `config.json`.
    /// `progress` hears of the bytes uploaded so far and of the file's.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::UnsupportedModel`], [`Error::Checkpoint`], [`Error::Tensor`], [`Error::Backend`].
    pub fn from_bytes(
        backend: &Arc<dyn ComputeBackend>,
        safetensors: &[u8],
        config: &[u8],
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Self> {
        let config = Config::from_json(config)?;
        let mut checkpoint = Checkpoint::new(backend, safetensors, &mut progress)?;
        Ok(Self {
            backend: Arc::clone(backend),
            embeddings: TokenEmbeddings::load(&mut checkpoint, &config)?,
            layers: (0..config.num_hidden_layers)
                .map(|i| EncoderLayer::load(&mut checkpoint, &config, i))
                .collect::<Result<_>>()?,
            config,
        })
    }

    /// The model's sizes.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The backend that holds the weights.
    #[must_use]
    pub const fn backend(&self) -> &Arc<dyn ComputeBackend> {
        &self.backend
    }

    /// Records the pass of a batch: writes the mean of each sequence's token vectors to `output`, `[size, hidden]`
    /// of f32. Reading `output` waits for it.
    ///
    /// A sequence without tokens gives zeros; a token id outside the vocabulary counts as a word embedding of zeros.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Backend`].
    pub fn forward(&self, batch: &Batch, output: &Buffer) -> Result<()> {
        let max = self.config.max_position_embeddings;
        if batch.seq() > max {
            return Err(Error::TooLong { tokens: batch.seq(), max });
        }
        let activations = Activations::new(&self.backend, &self.config, batch)?;
        self.embeddings.forward(&self.backend, batch, &activations)?;
        for layer in &self.layers {
            layer.forward(self.backend.as_ref(), &activations)?;
        }
        self.mean_pool(batch, &activations.hidden, output)?;
        Ok(())
    }

    /// `output[s] = weights[s] · hidden[s]`, a `1×seq · seq×hidden` product for each sequence.
    fn mean_pool(&self, batch: &Batch, hidden: &Buffer, output: &Buffer) -> BackendResult<()> {
        let (seq, columns) = (batch.seq(), self.config.hidden_size);
        let weights = Buffer::from_slice(&self.backend, &batch.mean_weights())?;
        let matrix = |buffer: &Buffer, rows: usize, columns: usize| {
            Matrix::new(buffer.ptr(), DType::F32, columns.max(1)).with_batch_stride(rows * columns)
        };
        let (weights, hidden, output) =
            (matrix(&weights, 1, seq), matrix(hidden, seq, columns), matrix(output, 1, columns));
        self.backend
            .matmul(&MatmulDesc::new(1, columns, seq, weights, hidden, output).with_batch(batch.size()))
    }
}
