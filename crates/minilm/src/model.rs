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
use crate::{Batch, Buffer, CapturedPass, Config, Error, Result};

/// The weights on a device, and what is computed with them there.
#[derive(Debug)]
pub struct Model {
    backend: Arc<dyn ComputeBackend>,
    config: Config,
    dtype: DType,
    embeddings: TokenEmbeddings,
    layers: Vec<EncoderLayer>,
}

impl Model {
    /// Uploads a checkpoint: `safetensors` and `config` are the contents of `model.safetensors` and
    /// `config.json`. Weights and activations are kept in `dtype`, f32 or f16. `progress` hears of the bytes
    /// uploaded so far and of the file's.
    ///
    /// # Errors
    /// [`Error::Config`], [`Error::UnsupportedModel`], [`Error::Checkpoint`], [`Error::Tensor`],
    /// [`Error::Backend`].
    pub fn from_bytes(
        backend: &Arc<dyn ComputeBackend>,
        safetensors: &[u8],
        config: &[u8],
        dtype: DType,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Self> {
        let config = Config::from_json(config)?;
        let mut checkpoint = Checkpoint::new(backend, dtype, safetensors, &mut progress)?;
        Ok(Self {
            backend: Arc::clone(backend),
            embeddings: TokenEmbeddings::load(&mut checkpoint, &config)?,
            layers: (0..config.num_hidden_layers)
                .map(|i| EncoderLayer::load(&mut checkpoint, &config, i))
                .collect::<Result<_>>()?,
            config,
            dtype,
        })
    }

    /// [`from_bytes`](Self::from_bytes) that waits without blocking: after each layer it lets others go on,
    /// and the device catch up.
    ///
    /// # Errors
    /// As [`from_bytes`](Self::from_bytes).
    pub async fn from_bytes_async(
        backend: &Arc<dyn ComputeBackend>,
        safetensors: &[u8],
        config: &[u8],
        dtype: DType,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Self> {
        let config = Config::from_json(config)?;
        let mut checkpoint = Checkpoint::new(backend, dtype, safetensors, &mut progress)?;
        let embeddings = TokenEmbeddings::load(&mut checkpoint, &config)?;
        backend.synchronize_async().await?;
        // Not by the number that the configuration claims: a layer that isn't there ends the loop.
        let mut layers = Vec::new();
        for i in 0..config.num_hidden_layers {
            layers.push(EncoderLayer::load(&mut checkpoint, &config, i)?);
            backend.synchronize_async().await?;
        }
        Ok(Self { backend: Arc::clone(backend), config, dtype, embeddings, layers })
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

    /// Records the pass of a batch: writes the mean of each sequence's token vectors to `output`,
    /// `[size, hidden]` of f32. Reading `output` waits for it.
    ///
    /// A sequence without tokens gives zeros; a token id outside the vocabulary counts as a word embedding of
    /// zeros.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Backend`].
    pub fn forward(&self, batch: &Batch, output: &Buffer) -> Result<()> {
        self.require_positions(batch.seq())?;
        let activations = Activations::new(&self.backend, &self.config, self.dtype, batch)?;
        self.record(self.backend.as_ref(), batch, &activations, output)?;
        Ok(())
    }

    /// Captures the pass of batches of `size` sequences of `seq` tokens, which may be run again and again with other
    /// tokens and lengths. It is worth it where a shape comes back and the host, which records some 50 operations
    /// for a pass, would take longer than the device: for batches of few tokens.
    ///
    /// # Errors
    /// [`Error::TooLong`], [`Error::Backend`].
    pub fn capture(&self, size: usize, seq: usize) -> Result<CapturedPass> {
        self.require_positions(seq)?;
        let batch = Batch::new(&vec![vec![0; seq]; size]);
        let activations = Activations::new(&self.backend, &self.config, self.dtype, &batch)?;
        let output = Buffer::new::<f32>(&self.backend, &[size, self.config.hidden_size])?;
        let record = |backend: &dyn ComputeBackend, activations: &Activations, output: &Buffer| {
            self.record(backend, &batch, activations, output)
        };
        Ok(CapturedPass::new(&self.backend, activations, output, record)?)
    }

    fn require_positions(&self, tokens: usize) -> Result<()> {
        let max = self.config.max_position_embeddings;
        if tokens > max { Err(Error::TooLong { tokens, max }) } else { Ok(()) }
    }

    /// Compiles what [`forward`](Self::forward) of batches of this shape needs, without blocking; see
    /// [`ComputeBackend::warm_up_async`].
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub async fn warm_up_async(&self, batch: &Batch) -> Result<()> {
        let activations = Activations::new(&self.backend, &self.config, self.dtype, batch)?;
        let output = Buffer::new::<f32>(&self.backend, &[batch.size(), self.config.hidden_size])?;
        let pass = |backend: &dyn ComputeBackend| self.record(backend, batch, &activations, &output);
        self.backend.warm_up_async(&[&pass]).await?;
        Ok(())
    }

    /// The pass's operations, on the model's backend or on a rehearsal of it.
    fn record(
        &self,
        backend: &dyn ComputeBackend,
        batch: &Batch,
        activations: &Activations,
        output: &Buffer,
    ) -> BackendResult<()> {
        self.embeddings.forward(backend, batch, activations)?;
        for layer in &self.layers {
            layer.forward(backend, activations)?;
        }
        self.mean_pool(backend, activations, output)
    }

    /// `output[s] = weights[s] · hidden[s]`, a `1×seq · seq×hidden` product for each sequence.
    fn mean_pool(
        &self,
        backend: &dyn ComputeBackend,
        activations: &Activations,
        output: &Buffer,
    ) -> BackendResult<()> {
        let (size, seq, columns) = (activations.batch, activations.seq, self.config.hidden_size);
        let matrix = |buffer: &Buffer, dtype: DType, rows: usize, columns: usize| {
            Matrix::new(buffer.ptr(), dtype, columns.max(1)).with_batch_stride(rows * columns)
        };
        let weights = matrix(&activations.mean_weights, DType::F32, 1, seq);
        let hidden = matrix(&activations.hidden, self.dtype, seq, columns);
        let output = matrix(output, DType::F32, 1, columns);
        backend.matmul(&MatmulDesc::new(1, columns, seq, weights, hidden, output).with_batch(size))
    }
}
