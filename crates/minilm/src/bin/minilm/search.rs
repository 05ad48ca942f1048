//! From a question and files to a report.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use backend_api::{ComputeBackend, DType};
use minilm::{Embeddings, Encoder, ModelDir, Passage};
use model_cli::progress_bar;

use crate::args::Args;
use crate::report::{Hit, Report, Timings};

/// Opens the backend, loads the model, embeds the question and every passage, and ranks the passages.
pub(crate) fn run(args: &Args) -> anyhow::Result<Report> {
    let model = ModelDir::locate(args.model.as_deref())?;
    let passages = read_passages(&args.files)?;
    ensure!(!passages.is_empty(), "there is no text in the given files");
    let texts: Vec<&str> = passages.iter().map(|(_, passage)| passage.text.as_str()).collect();
    let query = args.query.as_deref().unwrap_or_default();

    let (selection, open_seconds) = timed(|| model_cli::select(&args.backend))?;
    let (encoder, load_seconds) = timed(|| load(&model, selection.backend, args.half))?;
    let encoder = encoder.with_batch_size(args.batch);
    // The question goes first: what a device does once, such as compiling kernels, isn't counted to the
    // passages.
    let (question, query_seconds) =
        timed(|| encoder.encode(&[query], |_| ()).context("can't embed the query"))?;
    let (embeddings, embed_seconds) = timed(|| embed(&encoder, &texts))?;

    let timings = Timings::new(
        [open_seconds, load_seconds, query_seconds, embed_seconds],
        texts.len(),
        embeddings.tokens(),
    );
    let nearest = question.iter().next().map(|vector| embeddings.nearest(vector, args.top));
    let results = nearest
        .unwrap_or_default()
        .into_iter()
        .filter_map(|(i, score)| passages.get(i).map(|(file, passage)| Hit::new(score, file, passage)))
        .collect();
    Ok(Report::new(query, &model, &encoder, (selection.device, selection.reason), timings, results))
}

fn load(model: &ModelDir, backend: Box<dyn ComputeBackend>, half: bool) -> anyhow::Result<Encoder> {
    model_cli::with_loading_bar(|progress| {
        let encoder = model
            .load(&Arc::from(backend), if half { DType::F16 } else { DType::F32 }, progress)
            .with_context(|| format!("can't load the model in {}", model.path().display()))?;
        encoder.model().backend().synchronize()?;
        Ok(encoder)
    })
}

fn embed(encoder: &Encoder, texts: &[&str]) -> anyhow::Result<Embeddings> {
    let bar = progress_bar("embedding", "{pos}/{len} passages, {eta} left");
    bar.set_length(texts.len() as u64);
    let embeddings =
        encoder.encode(texts, |done| bar.set_position(done as u64)).context("can't embed the passages")?;
    bar.finish_and_clear();
    Ok(embeddings)
}

/// The result of `work` and the seconds it took.
fn timed<T>(work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(T, f64)> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, start.elapsed().as_secs_f64()))
}

/// The passages of all files, each with its file.
fn read_passages(files: &[PathBuf]) -> anyhow::Result<Vec<(&Path, Passage)>> {
    let mut passages = Vec::new();
    for file in files {
        let document =
            std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
        let parts = minilm::split(&document);
        passages.extend(parts.into_iter().map(|passage| (file.as_path(), passage)));
    }
    Ok(passages)
}
