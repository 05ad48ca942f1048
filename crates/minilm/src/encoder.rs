//! From texts to vectors.

use crate::{Batch, Buffer, Embeddings, Model, Result, Tokenizer, plan_batches};

/// Texts that are run together, unless [`Encoder::with_batch_size`] says otherwise.
pub const DEFAULT_BATCH_SIZE: usize = 32;

/// Batches recorded before their results are read together: a device that runs beside the host is kept busy,
/// and the results that it holds stay bounded.
const BATCHES_PER_READ: usize = 16;

/// A model and its tokenizer.
#[derive(Debug)]
pub struct Encoder {
    model: Model,
    tokenizer: Tokenizer,
    batch_size: usize,
}

impl Encoder {
    /// Puts the two together.
    #[must_use]
    pub const fn new(model: Model, tokenizer: Tokenizer) -> Self {
        Self { model, tokenizer, batch_size: DEFAULT_BATCH_SIZE }
    }

    /// Runs at most `batch_size` texts together, at least one.
    #[must_use]
    pub fn with_batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size.max(1);
        self
    }

    /// The model.
    #[must_use]
    pub const fn model(&self) -> &Model {
        &self.model
    }

    /// The tokenizer.
    #[must_use]
    pub const fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Embeds `texts`. `progress` hears how many have been handed to the device so far.
    ///
    /// # Errors
    /// [`Error::Backend`](crate::Error::Backend).
    pub fn encode<S: AsRef<str>>(&self, texts: &[S], mut progress: impl FnMut(usize)) -> Result<Embeddings> {
        let mut job = Job::new(self, texts);
        while let Some(pending) = job.record_next(self, &mut progress)? {
            let mut vectors = pending.host_memory();
            pending.output.read(&mut vectors)?;
            job.store(&pending, &vectors);
        }
        Ok(job.embeddings)
    }

    /// [`encode`](Self::encode) that waits without blocking.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub async fn encode_async<S: AsRef<str>>(
        &self,
        texts: &[S],
        mut progress: impl FnMut(usize),
    ) -> Result<Embeddings> {
        let mut job = Job::new(self, texts);
        while let Some(pending) = job.record_next(self, &mut progress)? {
            let mut vectors = pending.host_memory();
            pending.output.read_async(&mut vectors).await?;
            job.store(&pending, &vectors);
        }
        Ok(job.embeddings)
    }
}

/// One call of [`Encoder::encode`].
struct Job {
    /// Token ids of each text.
    sequences: Vec<Vec<u32>>,
    /// Texts of each batch that is still to be recorded.
    batches: std::vec::IntoIter<Vec<usize>>,
    recorded: usize,
    embeddings: Embeddings,
}

/// Batches that the device works on.
struct Pending {
    /// The texts, in the order of their vectors in `output`.
    texts: Vec<usize>,
    /// `[texts, dim]`.
    output: Buffer,
}

impl Pending {
    fn host_memory(&self) -> Vec<f32> {
        vec![0.0; self.output.bytes() / size_of::<f32>()]
    }
}

impl Job {
    fn new<S: AsRef<str>>(encoder: &Encoder, texts: &[S]) -> Self {
        let sequences = encoder.tokenizer.encode(texts);
        let lengths: Vec<usize> = sequences.iter().map(Vec::len).collect();
        let dim = encoder.model.config().hidden_size;
        Self {
            batches: plan_batches(&lengths, encoder.batch_size).into_iter(),
            recorded: 0,
            embeddings: Embeddings::zeros(texts.len(), dim, lengths.iter().sum()),
            sequences,
        }
    }

    /// Records the next few batches; `None` when there are none left.
    fn record_next(
        &mut self,
        encoder: &Encoder,
        progress: &mut impl FnMut(usize),
    ) -> Result<Option<Pending>> {
        let batches: Vec<Vec<usize>> = self.batches.by_ref().take(BATCHES_PER_READ).collect();
        let texts = batches.concat();
        if texts.is_empty() {
            return Ok(None);
        }
        let dim = self.embeddings.dim();
        let output = Buffer::new::<f32>(encoder.model.backend(), &[texts.len(), dim])?;
        let vector_bytes = dim * size_of::<f32>();
        let mut offset = 0;
        for batch in &batches {
            let sequences: Vec<&[u32]> = batch.iter().map(|&i| self.sequences[i].as_slice()).collect();
            let rows = output.view(offset, batch.len() * vector_bytes)?;
            encoder.model.forward(&Batch::new(&sequences), &rows)?;
            offset += rows.bytes();
            self.recorded += batch.len();
            progress(self.recorded);
        }
        Ok(Some(Pending { texts, output }))
    }

    fn store(&mut self, pending: &Pending, vectors: &[f32]) {
        for (&text, vector) in pending.texts.iter().zip(vectors.chunks_exact(self.embeddings.dim())) {
            self.embeddings.set_normalized(text, vector);
        }
    }
}
