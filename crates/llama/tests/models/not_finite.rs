//! Models whose logits are no numbers.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use backend_api::ComputeBackend;
use candle_core::quantized::GgmlDType;
use llama::gguf::Gguf;
use llama::{Error, Input, Model, Sampler, Sampling, Session, SessionOptions};

use crate::random::{RandomModel, recipe};

/// Every way to a token or a probability says so, and adds nothing.
pub(crate) fn logits_are_refused(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let mut file = RandomModel::new(recipe("llama", 64), GgmlDType::F32, None)?.file;
    let parsed = Gguf::parse(&file)?;
    let norm = parsed.tensor("output_norm.weight").context("no norm")?;
    let at = norm.data.as_ptr() as usize - file.as_ptr() as usize;
    file[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());

    let model = Arc::new(Model::load(backend, &Gguf::parse(&file)?, |_, _| ())?);
    let mut session = Session::new(&model, SessionOptions::new(40))?;
    for sampling in [Sampling::greedy(), Sampling::default()] {
        let mut sampler = Sampler::new(sampling);
        let logits = session.step(&[Input { sequence: 0, tokens: &[1, 2, 3] }])?;
        let sampled = logits.sample(&mut sampler, &[&[1, 2, 3]]);
        ensure!(matches!(sampled, Err(Error::NotFinite)), "{sampled:?}");
        let decoded = session.decode_sampled(0, &[&[4]], &mut sampler, 5);
        ensure!(matches!(decoded, Err(Error::NotFinite)), "{decoded:?}");
        let waited = pollster::block_on(session.decode_sampled_async(0, &[&[4]], &mut sampler, 5));
        ensure!(matches!(waited, Err(Error::NotFinite)), "{waited:?}");
        let scored = session.log_probabilities(0, &[4, 5, 6]);
        ensure!(matches!(scored, Err(Error::NotFinite)), "{scored:?}");
        ensure!(session.len(0) == 3, "a failed call added {} tokens", session.len(0) - 3);
        session.truncate(0, 0);
    }
    Ok(())
}
