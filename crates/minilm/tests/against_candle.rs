//! Embeddings on every device there is, against candle-transformers on the CPU with the same weights.

mod candle;

use std::path::Path;
use std::sync::{Arc, LazyLock};

use anyhow::{Context, ensure};
use backend_api::{ComputeBackend, DType, DeviceInfo, DeviceKind, ErrorKind, Registry};
use backend_webgpu::WebGpuBackend;
use candle::Candle;
use libtest_mimic::{Arguments, Failed, Trial};
use minilm::{Batch, Buffer, Encoder, MAX_TOKENS, ModelDir};

/// 50 lines, each a sentence: of one word to more than [`MAX_TOKENS`] tokens, in several languages, one
/// empty.
const SENTENCES: &str = include_str!("fixtures/sentences.txt");

const LEAST_COSINE: f64 = 0.9999;
/// With weights and activations of f16.
const LEAST_COSINE_HALF: f64 = 0.999;

/// candle's vectors, each sentence run alone, so that no padding takes part. The error is shared by every
/// trial.
static EXPECTED: LazyLock<Result<Vec<Vec<f32>>, String>> =
    LazyLock::new(|| expected().map_err(|error| format!("{error:#}")));

type SharedEncoder =
    Arc<LazyLock<Result<Encoder, String>, Box<dyn FnOnce() -> Result<Encoder, String> + Send>>>;

fn main() {
    let mut arguments = Arguments::from_args();
    // Each trial keeps every core busy by itself.
    arguments.test_threads.get_or_insert(1);
    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_webgpu::register(&mut registry);
    let registry = Arc::new(registry);

    let devices = registry.available();
    let mut trials: Vec<Trial> = devices.iter().flat_map(|device| device_trials(&registry, device)).collect();
    let has_adapter = devices.iter().any(|device| device.selector.starts_with("webgpu"));
    trials.push(Trial::test("an_adapter_is_found", move || {
        if has_adapter {
            return Ok(());
        }
        Err("no WebGPU adapter: `cargo xtask test` installs a software driver, or says how".into())
    }));
    libtest_mimic::run(&arguments, trials).exit();
}

fn device_trials(registry: &Arc<Registry>, device: &DeviceInfo) -> Vec<Trial> {
    let encoder: SharedEncoder = {
        let (registry, selector) = (Arc::clone(registry), device.selector.clone());
        Arc::new(LazyLock::new(Box::new(move || {
            load(&registry, &selector).map_err(|error| format!("{error:#}"))
        })))
    };
    let trial = |name: &str, check: fn(&Encoder) -> anyhow::Result<()>| {
        let encoder = Arc::clone(&encoder);
        Trial::test(format!("{}::{name}", device.selector), move || {
            let encoder = encoder.as_ref().as_ref().map_err(Failed::from)?;
            check(encoder).map_err(|error| Failed::from(format!("{error:#}")))
        })
    };
    // SwiftShader reaches a tenth of a GFLOP/s: the fifty sentences would take it half an hour. OpenGL's llvmpipe, whose kernels
    // compute as lavapipe's do, has what is short.
    let embedding = if device.name.contains("SwiftShader") {
        vec![trial("a_few_words", a_few_words)]
    } else if device.kind == DeviceKind::SoftwareAdapter && device.api == "Gl" {
        vec![trial("without_blocking", without_blocking), trial("captured", captured)]
    } else {
        let mut trials = vec![
            trial("fifty_sentences_in_batches", fifty_sentences_in_batches),
            trial("one_by_one", one_by_one),
            trial("without_blocking", without_blocking),
            trial("in_f16", in_f16),
            trial("captured", captured),
        ];
        // The batches of fifty sentences have mixed lengths, too.
        if device.kind != DeviceKind::SoftwareAdapter {
            trials.push(trial("one_batch_of_mixed_lengths", one_batch_of_mixed_lengths));
        }
        trials
    };
    let on_a_new_device = |name: &str, check: fn(&Registry, &str) -> anyhow::Result<()>| {
        let (registry, selector) = (Arc::clone(registry), device.selector.clone());
        Trial::test(format!("{}::{name}", device.selector), move || {
            check(&registry, &selector).map_err(|error| Failed::from(format!("{error:#}")))
        })
    };
    let always = [
        on_a_new_device("a_tenth_more_memory_than_needed_is_enough", a_tenth_more_memory),
        on_a_new_device("refused_memory_is_an_error_and_no_more", refused_memory),
        on_a_new_device("the_cpu_agrees_call_by_call", compared_with_the_cpu),
        trial("a_sequence_beyond_the_positions_is_refused", too_long_is_refused),
        on_a_new_device("every_buffer_is_freed", every_buffer_is_freed),
    ];
    embedding.into_iter().chain(always).collect()
}

/// The number of the shortest sentence that has a word.
fn shortest() -> anyhow::Result<usize> {
    let all = sentences();
    let shortest = (0..all.len()).filter(|&i| !all[i].is_empty()).min_by_key(|&i| all[i].len());
    shortest.context("no sentence")
}

fn a_few_words(encoder: &Encoder) -> anyhow::Result<()> {
    let index = shortest()?;
    let embeddings = encoder.encode(&sentences()[index..=index], |_| ())?;
    compare(embeddings.iter(), index..index + 1)
}

fn fifty_sentences_in_batches(encoder: &Encoder) -> anyhow::Result<()> {
    let texts = sentences();
    ensure!(texts.len() == 50, "{} sentences", texts.len());
    let longest = encoder.tokenizer().encode(&texts).iter().map(Vec::len).max();
    ensure!(longest == Some(MAX_TOKENS), "no sentence was cut off: {longest:?}");
    let mut reported = Vec::new();
    let embeddings = encoder.encode(&texts, |done| reported.push(done))?;
    ensure!(reported.last() == Some(&texts.len()), "progress ended at {reported:?}");
    ensure!(reported.is_sorted(), "progress went back: {reported:?}");
    compare(embeddings.iter(), 0..texts.len())
}

fn one_batch_of_mixed_lengths(encoder: &Encoder) -> anyhow::Result<()> {
    let indices = 0..32;
    let sequences = encoder.tokenizer().encode(&sentences()[indices.clone()]);
    let batch = Batch::new(&sequences);
    let dim = encoder.model().config().hidden_size;
    let output = Buffer::new::<f32>(encoder.model().backend(), &[batch.size(), dim])?;
    encoder.model().forward(&batch, &output)?;
    let mut vectors = vec![0f32; batch.size() * dim];
    output.read(&mut vectors)?;
    compare(vectors.chunks_exact(dim), indices)
}

fn one_by_one(encoder: &Encoder) -> anyhow::Result<()> {
    let texts = sentences();
    for index in [0, 2, 3, 14, 21, 30, 44, 45] {
        let embeddings = encoder.encode(&texts[index..=index], |_| ())?;
        compare(embeddings.iter(), index..index + 1)?;
    }
    Ok(())
}

fn without_blocking(encoder: &Encoder) -> anyhow::Result<()> {
    let texts = &sentences()[..12];
    let embeddings = pollster::block_on(encoder.encode_async(texts, |_| ()))?;
    compare(embeddings.iter(), 0..texts.len())
}

/// In f16, which a device may lack.
fn in_f16(encoder: &Encoder) -> anyhow::Result<()> {
    let backend = encoder.model().backend();
    let half = ModelDir::locate(None)?.load(backend, DType::F16, |_, _| ());
    if !backend.capabilities()?.f16 {
        let kind = half.err().map(
            |error| matches!(error, minilm::Error::Backend(error) if error.kind() == ErrorKind::Unsupported),
        );
        ensure!(kind == Some(true), "a device without f16 took it");
        return Ok(());
    }
    let texts = &sentences()[..12];
    compare_within(half?.encode(texts, |_| ())?.iter(), 0..texts.len(), LEAST_COSINE_HALF)
}

/// Two batches of one shape, told apart by tokens and lengths, through one captured pass.
fn captured(encoder: &Encoder) -> anyhow::Result<()> {
    let (model, dim) = (encoder.model(), encoder.model().config().hidden_size);
    let sequences = encoder.tokenizer().encode(&sentences()[..4]);
    let seq = sequences.iter().map(Vec::len).max().unwrap_or(0);
    let pass = model.capture(2, seq)?;
    for [long, short] in [[0, 1], [2, 3], [1, 0]] {
        let mut padded = sequences[long].clone();
        // As long as the pass is, so that the batch has its shape.
        padded.resize(seq, 7);
        let batch = Batch::new(&[padded, sequences[short].clone()]);
        let output = Buffer::new::<f32>(model.backend(), &[2, dim])?;
        model.forward(&batch, &output)?;
        let [mut expected, mut got] = [vec![0f32; 2 * dim], vec![f32::NAN; 2 * dim]];
        output.read(&mut expected)?;
        pass.forward(&batch)?.read(&mut got)?;
        ensure!(got == expected, "a replayed pass gives other vectors");
    }
    let refused = pass.forward(&Batch::new(&vec![vec![7; seq + 1]; 2]));
    ensure!(matches!(refused, Err(minilm::Error::Batch { .. })), "{refused:?}");
    let refused = model.capture(1, 513);
    ensure!(matches!(refused, Err(minilm::Error::TooLong { tokens: 513, max: 512 })), "{refused:?}");
    Ok(())
}

fn too_long_is_refused(encoder: &Encoder) -> anyhow::Result<()> {
    let dim = encoder.model().config().hidden_size;
    let output = Buffer::new::<f32>(encoder.model().backend(), &[1, dim])?;
    let refused = encoder.model().forward(&Batch::new(&[vec![7; 513]]), &output);
    ensure!(matches!(refused, Err(minilm::Error::TooLong { tokens: 513, max: 512 })), "{refused:?}");
    Ok(())
}

/// On a device of its own, whose handles nobody else counts.
fn every_buffer_is_freed(registry: &Registry, selector: &str) -> anyhow::Result<()> {
    let backend: Arc<dyn ComputeBackend> = Arc::from(registry.create(selector)?);
    let before = backend.memory_stats();
    let encoder = ModelDir::locate(None)?.load(&backend, DType::F32, |_, _| ())?;
    encoder.encode(&["a", "b c"], |_| ())?;
    let loaded = backend.memory_stats();
    drop(encoder.model().capture(2, 3)?);
    let captured = backend.memory_stats();
    ensure!(
        (captured.handles, captured.in_use) == (loaded.handles, loaded.in_use),
        "a captured pass left behind: {captured:?}"
    );
    ensure!(backend.memory_stats().handles > 0, "the weights have no handles");
    drop(encoder);
    let after = backend.memory_stats();
    ensure!((after.handles, after.in_use) == (before.handles, before.in_use), "left behind: {after:?}");
    Ok(())
}

/// With a budget that is a tenth more than what the model takes without one.
fn a_tenth_more_memory(registry: &Registry, selector: &str) -> anyhow::Result<()> {
    let index = shortest()?;
    let run = |backend: &Arc<dyn ComputeBackend>| -> anyhow::Result<()> {
        let encoder = ModelDir::locate(None)?.load(backend, DType::F32, |_, _| ())?;
        a_few_words(&encoder)?;
        let embeddings = encoder.encode(&sentences()[index..=index], |_| ())?;
        compare(embeddings.iter(), index..index + 1)
    };
    let unbounded: Arc<dyn ComputeBackend> = Arc::from(registry.create(selector)?);
    run(&unbounded)?;
    let needed = unbounded.memory_stats().peak;
    let bounded: Arc<dyn ComputeBackend> = Arc::from(registry.create(selector)?);
    bounded.set_memory_budget(Some(needed / 10 * 11))?;
    run(&bounded).with_context(|| format!("{needed} bytes are needed: {:?}", bounded.memory_stats()))
}

/// Each allocation of a run refused in turn, and some of a load: an error, with nothing left behind, after which
/// the next run is right.
fn refused_memory(registry: &Registry, selector: &str) -> anyhow::Result<()> {
    let backend: Arc<dyn ComputeBackend> = Arc::from(registry.create(selector)?);
    let Some(webgpu) = backend.downcast_ref::<WebGpuBackend>() else { return Ok(()) };
    let locate = || ModelDir::locate(None);
    let in_use = || -> anyhow::Result<(usize, usize)> {
        backend.synchronize()?;
        let stats = backend.memory_stats();
        Ok((stats.handles, stats.in_use))
    };
    // Some of a load's allocations, the first one and as many as there are.
    for after in (0..).map(|step: usize| step * step) {
        let load = || locate()?.load(&backend, DType::F32, |_, _| ()).map(drop);
        if !is_refused(webgpu, after, load)? {
            ensure!(after > 16, "a load whose allocation {after} is refused succeeds");
            break;
        }
        ensure!(in_use()? == (0, 0), "left behind by allocation {after}: {:?}", in_use()?);
    }
    let encoder = locate()?.load(&backend, DType::F32, |_, _| ())?;
    let texts = &sentences()[shortest()?..=shortest()?];
    a_few_words(&encoder)?;
    let before = in_use()?;
    for after in 0..300 {
        if !is_refused(webgpu, after, || encoder.encode(texts, |_| ()).map(drop))? {
            ensure!(after > 0, "a run without memory succeeds");
            break;
        }
        ensure!(in_use()? == before, "left behind by allocation {after}: {:?}", in_use()?);
        a_few_words(&encoder).with_context(|| format!("after allocation {after} was refused"))?;
    }
    Ok(())
}

/// Whether something fails if the allocation `after` others is refused, as it should.
fn is_refused(
    webgpu: &WebGpuBackend,
    after: usize,
    run: impl FnOnce() -> minilm::Result<()>,
) -> anyhow::Result<bool> {
    webgpu.refuse_allocations(after, usize::MAX)?;
    let result = run();
    webgpu.refuse_allocations(0, 0)?;
    let Err(error) = result else { return Ok(false) };
    let of_memory = matches!(&error, minilm::Error::Backend(error) if error.kind() == ErrorKind::OutOfMemory);
    ensure!(of_memory, "allocation {after} was refused, with another error: {error}");
    Ok(true)
}

/// Each call beside the same call on the CPU.
fn compared_with_the_cpu(registry: &Registry, selector: &str) -> anyhow::Result<()> {
    let mut registry = registry.clone();
    backend_verify::register(&mut registry);
    a_few_words(&load(&registry, &format!("verify:{selector},cpu"))?)
}

/// Compares `vectors`, of any length, with candle's of the sentences `indices`.
fn compare<'a>(
    vectors: impl ExactSizeIterator<Item = &'a [f32]>,
    indices: std::ops::Range<usize>,
) -> anyhow::Result<()> {
    compare_within(vectors, indices, LEAST_COSINE)
}

fn compare_within<'a>(
    vectors: impl ExactSizeIterator<Item = &'a [f32]>,
    indices: std::ops::Range<usize>,
    least: f64,
) -> anyhow::Result<()> {
    let expected = EXPECTED.as_ref().map_err(|error| anyhow::anyhow!("candle: {error}"))?;
    ensure!(vectors.len() == indices.len(), "{} vectors for {indices:?}", vectors.len());
    for (vector, index) in vectors.zip(indices) {
        let cosine = cosine(vector, &expected[index]);
        ensure!(cosine >= least, "sentence {index} has cosine {cosine}: {:?}", sentences()[index]);
    }
    Ok(())
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn expected() -> anyhow::Result<Vec<Vec<f32>>> {
    let dir = ModelDir::locate(None)?;
    let tokenizer = reference_tokenizer(dir.path())?;
    let candle = Candle::load(dir.path())?;
    sentences()
        .iter()
        .map(|&sentence| {
            let encoding = tokenizer.encode(sentence, true).map_err(anyhow::Error::msg)?;
            let ids = encoding.get_ids();
            let mut vectors = candle.embed(ids, &[ids.len() as u32])?;
            vectors.pop().context("candle gave no vector")
        })
        .collect()
}

/// Set up here rather than by the crate under test.
fn reference_tokenizer(dir: &Path) -> anyhow::Result<tokenizers::Tokenizer> {
    let mut tokenizer =
        tokenizers::Tokenizer::from_file(dir.join("tokenizer.json")).map_err(anyhow::Error::msg)?;
    let truncation = tokenizers::TruncationParams { max_length: MAX_TOKENS, ..Default::default() };
    tokenizer.with_truncation(Some(truncation)).map_err(anyhow::Error::msg)?.with_padding(None);
    Ok(tokenizer)
}

fn sentences() -> Vec<&'static str> {
    SENTENCES.lines().collect()
}

fn load(registry: &Registry, selector: &str) -> anyhow::Result<Encoder> {
    Ok(ModelDir::locate(None)?.load(&Arc::from(registry.create(selector)?), DType::F32, |_, _| ())?)
}
