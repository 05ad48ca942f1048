//! The runtime behind the module.

use backend_api::{BackendError, DType};
use minilm::{Batch, Encoder, Error, MAX_TOKENS, Model, Result, Tokenizer, split};
use serde::Serialize;
use web_page::Device;
use web_time::Instant;

/// Texts that are run together. Few, so that the page hears of progress and the device is shared with its
/// drawing.
const BATCH: usize = 8;

/// Texts between two tells of progress.
const STEP: usize = 2 * BATCH;

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) device: Device,
    encoder: Option<Encoder>,
}

/// The answer to a query, for a page.
#[derive(Debug, Serialize)]
pub(crate) struct Ranking {
    /// Best first.
    results: Vec<Hit>,
    passages: usize,
    /// Tokens of all passages.
    tokens: usize,
    query_milliseconds: f64,
    embed_milliseconds: f64,
}

/// A passage that was found.
#[derive(Debug, Serialize)]
struct Hit {
    /// Cosine similarity to the query.
    score: f32,
    line: usize,
    text: String,
}

impl Engine {
    pub(crate) fn new(device: Device) -> Self {
        Self { device, encoder: None }
    }

    pub(crate) async fn load(
        &mut self,
        config: &[u8],
        tokenizer: Tokenizer,
        weights: &[u8],
        progress: impl FnMut(usize, usize),
    ) -> Result<()> {
        let model =
            Model::from_bytes_async(&self.device.backend, weights, config, DType::F32, progress).await?;
        self.encoder = Some(Encoder::new(model, tokenizer).with_batch_size(BATCH));
        Ok(())
    }

    /// One text and full batches, short and long: the kernels are chosen by such shapes.
    pub(crate) async fn warm_up(&self, mut progress: impl FnMut(usize, usize)) -> Result<()> {
        let model = self.encoder()?.model();
        let lengths = [8, 32, 128, MAX_TOKENS];
        let shapes: Vec<(usize, usize)> =
            [1, BATCH].into_iter().flat_map(|size| lengths.map(|length| (size, length))).collect();
        for (done, &(size, length)) in shapes.iter().enumerate() {
            progress(done, shapes.len());
            model.warm_up_async(&Batch::new(&vec![vec![0; length]; size])).await?;
        }
        progress(shapes.len(), shapes.len());
        Ok(())
    }

    pub(crate) async fn rank(
        &self,
        query: &str,
        document: &str,
        top: usize,
        mut progress: impl FnMut(usize, usize),
    ) -> Result<Ranking> {
        let encoder = self.encoder()?;
        let passages = split(document);
        let texts: Vec<&str> = passages.iter().map(|passage| passage.text.as_str()).collect();
        let start = Instant::now();
        let question = self.embed(query).await?;
        let asked = Instant::now();
        let (mut scores, mut tokens) = (Vec::with_capacity(texts.len()), 0);
        for (step, some) in texts.chunks(STEP).enumerate() {
            progress(step * STEP, texts.len());
            let embeddings = encoder.encode_async(some, |_| ()).await?;
            let nearest = embeddings.nearest(&question, some.len());
            scores.extend(nearest.into_iter().map(|(i, score)| (step * STEP + i, score)));
            tokens += embeddings.tokens();
        }
        progress(texts.len(), texts.len());
        scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        scores.truncate(top);
        Ok(Ranking {
            results: scores
                .into_iter()
                .map(|(i, score)| Hit { score, line: passages[i].line, text: passages[i].text.clone() })
                .collect(),
            passages: passages.len(),
            tokens,
            query_milliseconds: (asked - start).as_secs_f64() * 1e3,
            embed_milliseconds: asked.elapsed().as_secs_f64() * 1e3,
        })
    }

    pub(crate) async fn embed(&self, text: &str) -> Result<Vec<f32>> {
        let embeddings = self.encoder()?.encode_async(&[text], |_| ()).await?;
        Ok(embeddings.iter().next().map(<[f32]>::to_vec).unwrap_or_default())
    }

    fn encoder(&self) -> Result<&Encoder> {
        self.encoder.as_ref().ok_or(Error::Backend(BackendError::NotInitialized { op: "load" }))
    }
}
