//! Models whose logits are no numbers.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use backend_api::ComputeBackend;
use backend_api::kv::KvFormat;
use candle_core::quantized::GgmlDType;
use llama::gguf::Gguf;
use llama::{Error, Input, Model, Precision, Sampler, Sampling, Session, SessionOptions};

use crate::random::RandomModel;
use crate::recipes::recipe;

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

/// What a sequence had beyond its end doesn't reach those that follow, even if it is no number.
pub(crate) fn caches_forget(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    const WRONG: u32 = 66;
    for (architecture, hidden) in [("llama", 128), ("gemma2", 128)] {
        let mut file = RandomModel::new(recipe(architecture, hidden), GgmlDType::F32, None)?.file;
        let parsed = Gguf::parse(&file)?;
        let table = parsed.tensor("token_embd.weight").context("no embeddings")?;
        let row = table.data.as_ptr() as usize - file.as_ptr() as usize
            + WRONG as usize * hidden * size_of::<f32>();
        file[row..row + size_of::<f32>()].copy_from_slice(&f32::NAN.to_le_bytes());
        let model = Arc::new(Model::load(backend, &Gguf::parse(&file)?, |_, _| ())?);
        for cache in [None, Some(KvFormat::Q8_0)] {
            let mut options = SessionOptions::new(40).with_sequences(2);
            options.cache = cache;
            let after = |wrong: usize| -> anyhow::Result<Vec<f32>> {
                let mut session = Session::new(&model, options)?;
                for sequence in 0..2 {
                    session.step(&[Input { sequence, tokens: &[1, 2, 3] }])?;
                    if wrong > 0 {
                        session.step(&[Input { sequence, tokens: &vec![WRONG; wrong] }])?;
                    }
                    session.truncate(sequence, 3);
                }
                let mut logits = session.decode(0, &[4, 5])?;
                logits.extend(session.decode(1, &[6])?);
                logits.extend(session.step(&[Input { sequence: 0, tokens: &[7, 8] }])?.to_vec()?);
                // Tied embeddings have this row among those of the logits.
                Ok(logits.chunks(67).flat_map(|row| &row[..WRONG as usize]).copied().collect())
            };
            let (expected, got) = (after(0)?, after(20)?);
            ensure!(expected.iter().all(|logit| logit.is_finite()), "{architecture} {cache:?}: {expected:?}");
            ensure!(got == expected, "{architecture} {cache:?}: {got:?} instead of {expected:?}");
        }
    }
    Ok(())
}

/// Logits that aren't finite are told wherever in a call they are: here after the first token, whose overflow behind the last
/// layer is in no cache.
pub(crate) fn overflows_within_a_call_are_refused(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    const LARGE: usize = 9;
    let hidden = 128;
    let mut file = RandomModel::new(recipe("llama", hidden), GgmlDType::F32, None)?.file;
    let parsed = Gguf::parse(&file)?;
    let start = file.as_ptr() as usize;
    let place = |name: &str| {
        let tensor = parsed.tensor(name).with_context(|| format!("no {name}"))?;
        anyhow::Ok(tensor.data.as_ptr() as usize - start)
    };
    let (table, norm) = (place("token_embd.weight")?, place("output_norm.weight")?);
    let output = place("output.weight")?;
    let mut put = |at: usize, number: f32| file[at..at + 4].copy_from_slice(&number.to_le_bytes());
    put(table + LARGE * hidden * 4, 3e3);
    put(norm, 2e4);
    for token in 0..67 {
        put(output + token * hidden * 4, if token == 12 { 1e-3 } else { 0.0 });
    }
    let model = Model::load_with(backend, &Gguf::parse(&file)?, Precision::Mixed, |_, _| ());
    if !backend.capabilities()?.f16 {
        ensure!(model.is_err(), "a device without f16 took it");
        return Ok(());
    }
    let mut session = Session::new(&Arc::new(model?), SessionOptions::new(40))?;
    session.step(&[Input { sequence: 0, tokens: &[1, 2, 3] }])?;
    let mut sampler = Sampler::new(Sampling::greedy());
    for count in [1, 2, 5] {
        let decoded = session.decode_sampled(0, &[&[LARGE as u32]], &mut sampler, count);
        ensure!(matches!(decoded, Err(Error::NotFinite)), "{count} tokens: {decoded:?}");
        ensure!(session.len(0) == 3, "a failed call added {} tokens", session.len(0) - 3);
    }
    Ok(())
}
