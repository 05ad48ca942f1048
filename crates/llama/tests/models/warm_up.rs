//! Kernels that are compiled before a text needs them.

use std::sync::Arc;

use anyhow::ensure;
use backend_api::ComputeBackend;
use backend_webgpu::WebGpuBackend;
use candle_core::quantized::GgmlDType;
use llama::{Input, Sampler, Sampling, Session, SessionOptions};

use crate::random::{RandomModel, recipe};
use crate::{load, text};

/// After a warm-up for a prompt's length, neither the prompt nor tokens up to the end of the context compile a kernel, and the text
/// is what it is without one.
pub(crate) fn texts_compile_nothing(adapter: &str) -> anyhow::Result<()> {
    // Graphs of two pages, the second of which ends with the context.
    const CONTEXT: usize = 300;
    for (architecture, kind, sampling) in [
        ("llama", GgmlDType::Q8_0, Sampling::default()),
        ("gemma2", GgmlDType::F16, Sampling::greedy()),
        ("qwen3moe", GgmlDType::Q8_0, Sampling::default()),
    ] {
        let model = RandomModel::new(recipe(architecture, 64), kind, None)?;
        let prompt = text(&model, 0, 21);
        let mut backend = WebGpuBackend::select(adapter);
        backend.init()?;
        let backend = Arc::new(backend);
        let shared: Arc<dyn ComputeBackend> = Arc::clone(&backend) as _;
        let loaded = load(&shared, &model)?;
        let made = |warm: bool| -> anyhow::Result<Vec<u32>> {
            let mut session = Session::new(&loaded, SessionOptions::new(CONTEXT))?;
            if warm {
                pollster::block_on(session.warm_up_async(&[prompt.len()], &sampling))?;
                ensure!(session.is_empty(), "a warm-up added tokens");
            }
            let compiled = backend.compiled_kernels();
            ensure!(!warm || compiled > 10, "a warm-up compiled {compiled} kernels");
            let mut sampler = Sampler::new(sampling);
            let logits = session.step(&[Input { sequence: 0, tokens: &prompt }])?;
            let mut texts = logits.sample(&mut sampler, &[&prompt])?;
            let rest = CONTEXT - prompt.len();
            texts.extend(session.decode_sampled(0, &[&texts.clone()], &mut sampler, rest)?.concat());
            let later = backend.compiled_kernels() - compiled;
            ensure!(!warm || later == 0, "{architecture}, {sampling:?}: {later} kernels were compiled later");
            Ok(texts)
        };
        let (warm, cold) = (made(true)?, made(false)?);
        ensure!(warm == cold, "a warm-up changed the text");
    }
    Ok(())
}

/// Prompts that no context has room for, none at all, and a session that is full.
pub(crate) fn any_length_is_taken(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let model = RandomModel::new(recipe("llama", 64), GgmlDType::F32, None)?;
    let loaded = load(backend, &model)?;
    for context in [1, 2, 40] {
        let mut session = Session::new(&loaded, SessionOptions::new(context).with_sequences(2))?;
        for length in [0, context] {
            session.truncate(0, 0);
            if length > 0 {
                session.step(&[Input { sequence: 0, tokens: &text(&model, 1, length) }])?;
            }
            for prompts in [&[][..], &[0], &[1, 7, 1000], &[usize::MAX]] {
                pollster::block_on(session.warm_up_async(prompts, &Sampling::default()))?;
            }
        }
    }
    let session = Session::new(&loaded, SessionOptions::new(4))?;
    let mut sampling = Sampling::default();
    (sampling.repetition_penalty, sampling.repetition_window) = (1.1, 1 << 20);
    ensure!(pollster::block_on(session.warm_up_async(&[1], &sampling)).is_err(), "a window of 2^20 tokens");
    Ok(())
}
