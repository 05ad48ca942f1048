//! Language models, whose numbers the driver compares.

use std::sync::Arc;

use backend_api::{ComputeBackend, DType};
use js_sys::Uint8Array;
use llama::gguf::Index;
use llama::{Input, Model, Precision, Result, Session, SessionOptions};

/// What follows the first `prompt` tokens, taken in one step, and each one more, captured and replayed: logits,
/// `[tokens − prompt + 1, vocabulary]`.
pub(crate) async fn logits(
    backend: &str,
    file: &Uint8Array,
    tokens: &[u32],
    prompt: usize,
) -> Result<Vec<f32>> {
    let backend: Arc<dyn ComputeBackend> = Arc::from(super::open(backend).await?.backend);
    let file = file.to_vec();
    let index = Index::read(file.as_slice()).await?;
    let model = Model::load_from(&backend, file.as_slice(), &index, Precision::F32, |_, _| ()).await?;
    let options = SessionOptions::new(tokens.len()).with_cache(DType::F32.into());
    let mut session = Session::new(&Arc::new(model), options)?;
    let (first, rest) = tokens.split_at(prompt.min(tokens.len()));
    let mut logits = session.step(&[Input { sequence: 0, tokens: first }])?.to_vec_async().await?;
    for token in rest {
        logits.extend(session.decode_async(0, &[*token]).await?);
    }
    Ok(logits)
}
