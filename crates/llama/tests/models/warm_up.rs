//! Kernels that are compiled before a text needs them.

use std::sync::Arc;
use std::thread;

use anyhow::ensure;
use backend_api::ComputeBackend;
use backend_api::kv::KvFormat;
use backend_webgpu::WebGpuBackend;
use candle_core::quantized::GgmlDType;
use llama::gguf::Gguf;
use llama::{Filling, Input, Model, Precision, Sampler, Sampling, Session, SessionOptions};

use crate::random::RandomModel;
use crate::recipes::recipe;
use crate::{load, text};

/// After a warm-up for a prompt's length, which goes on while the model is uploaded, neither the prompt nor tokens up to the end of the context compile a kernel, and the text
/// is what it is without one, also where another warm-up comes amid it.
pub(crate) fn texts_compile_nothing(adapter: &str) -> anyhow::Result<()> {
    // Prompts of one pass and of two; graphs of two pages, the second of which ends with the context.
    for (architecture, kind, sampling, [prompt, context], cache) in [
        ("llama", GgmlDType::Q8_0, Sampling::default(), [21, 300], None),
        ("llama", GgmlDType::Q8_0, Sampling::default(), [530, 600], Some(KvFormat::Q8_0)),
        ("gemma2", GgmlDType::F16, Sampling::greedy(), [21, 300], None),
        ("qwen3moe", GgmlDType::Q8_0, Sampling::default(), [21, 40], None),
    ] {
        let model = RandomModel::new(recipe(architecture, 128), kind, None)?;
        let prompt = text(&model, 0, prompt);
        let mut backend = WebGpuBackend::select(adapter);
        backend.init()?;
        let backend = Arc::new(backend);
        let shared: Arc<dyn ComputeBackend> = Arc::clone(&backend) as _;
        let loaded = load(&shared, &model)?;
        let file = Gguf::parse(&model.file)?;
        let (allocated, filling) = Model::allocate(&shared, &file, Precision::F32)?;
        let made = |model: &Arc<Model>, filling: Option<Filling<'_>>| -> anyhow::Result<Vec<u32>> {
            let mut options = SessionOptions::new(context);
            options.cache = cache;
            let mut session = Session::new(model, options)?;
            let before = backend.compiled_kernels();
            let warm = filling.is_some();
            if let Some(filling) = filling {
                let prompts = [prompt.len()];
                let (warmed, filled) = thread::scope(|scope| {
                    let beside =
                        scope.spawn(|| pollster::block_on(session.warm_up_async(&prompts, &sampling)));
                    let filled = filling.run(|_, _| ());
                    (beside.join().unwrap(), filled)
                });
                warmed?;
                filled?;
                ensure!(session.is_empty(), "a warm-up added tokens");
                let compiled = backend.compiled_kernels() - before;
                ensure!(compiled > 10, "a warm-up compiled {compiled} kernels");
            }
            let before = backend.compiled_kernels();
            let mut sampler = Sampler::new(sampling);
            let logits = session.step(&[Input { sequence: 0, tokens: &prompt }])?;
            let mut seen = prompt.clone();
            seen.extend(logits.sample(&mut sampler, &[&prompt])?);
            let some = 5;
            seen.extend(session.decode_sampled(0, &[&seen.clone()], &mut sampler, some)?.concat());
            if warm {
                pollster::block_on(session.warm_up_async(&[], &sampling))?;
                ensure!(session.len(0) == prompt.len() + some, "a warm-up changed the length");
            }
            let rest = context - session.len(0);
            seen.extend(session.decode_sampled(0, &[&seen.clone()], &mut sampler, rest)?.concat());
            let later = backend.compiled_kernels() - before;
            ensure!(!warm || later == 0, "{architecture}, {sampling:?}: {later} kernels were compiled later");
            Ok(seen)
        };
        let (warm, cold) = (made(&Arc::new(allocated), Some(filling))?, made(&loaded, None)?);
        ensure!(warm == cold && warm.len() == context + 1, "a warm-up changed the text");
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
            if length > 0 {
                session.step(&[Input { sequence: 0, tokens: &text(&model, 1, length) }])?;
            }
            for prompts in [&[][..], &[0], &[1, 7, 1000], &[usize::MAX]] {
                pollster::block_on(session.warm_up_async(prompts, &Sampling::default()))?;
                ensure!([0, 1].map(|sequence| session.len(sequence)) == [length, 0], "lengths");
            }
        }
    }
    let session = Session::new(&loaded, SessionOptions::new(4))?;
    let mut sampling = Sampling::default();
    (sampling.repetition_penalty, sampling.repetition_window) = (1.1, 1 << 20);
    ensure!(pollster::block_on(session.warm_up_async(&[1], &sampling)).is_err(), "a window of 2^20 tokens");
    Ok(())
}

/// A context whose later part the device can't bind keeps no text from its beginning.
pub(crate) fn what_has_no_room_is_left_out(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let most = backend.capabilities()?.max_binding_bytes;
    let model = RandomModel::new(recipe("llama", 512), GgmlDType::Q8_0, None)?;
    let loaded = load(backend, &model)?;
    let row = 2 * model.recipe.kv_heads * model.recipe.head_dim * size_of::<f32>();
    // Beyond it only where that is little memory.
    let context = if most <= 1 << 28 { most / row + 1000 } else { 1000 };
    let mut session = Session::new(&loaded, SessionOptions::new(context))?;
    pollster::block_on(session.warm_up_async(&[3], &Sampling::default()))?;
    let logits = session.step(&[Input { sequence: 0, tokens: &[1, 2, 3] }])?.to_vec()?;
    ensure!(logits.iter().all(|logit| logit.is_finite()), "logits after a warm-up");
    Ok(())
}
