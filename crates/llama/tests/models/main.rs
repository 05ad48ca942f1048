//! Random models of each architecture and format on every backend, against a forward pass in f64, greedy text against
//! candle's, and drawn text against its probabilities.

mod candle;
mod devices;
mod failing;
mod half_activations;
mod mixture;
mod not_finite;
mod oracle;
mod random;
mod recipes;
mod sampled;
mod tensors;
mod warm_up;
mod writer;

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use backend_api::kv::KvFormat;
use backend_api::{ComputeBackend, DType};
use candle_core::quantized::GgmlDType;
use libtest_mimic::{Arguments, Failed, Trial};
use llama::gguf::Gguf;
use llama::{Input, Model, Session, SessionOptions};
use random::RandomModel;
use recipes::recipe;

/// Of a logarithm of a probability, from the one in f64.
const TOLERANCE: f64 = 2e-3;

const ARCHITECTURES: [&str; 28] = [
    "llama",
    "llama3.1",
    "mixtral",
    "qwen2",
    "qwen2moe",
    "qwen3",
    "qwen3moe",
    "gemma2",
    "gemma3",
    "phi3",
    "gpt-oss",
    "granite",
    "granite_nope",
    "granitemoe",
    "granitemoe_shared",
    "smollm3",
    "olmo2",
    "olmo3",
    "mistral3",
    "ernie4_5",
    "seed_oss",
    "gemma",
    "glm4",
    "exaone4",
    "exaone4_full",
    "hunyuan-dense",
    "command-r",
    "cohere2",
];

/// Formats of matrices, with what mixtures have beside them.
const FORMATS: [(GgmlDType, Option<GgmlDType>); 13] = [
    (GgmlDType::F16, None),
    (GgmlDType::BF16, None),
    (GgmlDType::Q8_0, None),
    (GgmlDType::Q4_0, Some(GgmlDType::Q8_0)),
    (GgmlDType::Q4_0, Some(GgmlDType::Q4_1)),
    (GgmlDType::Q5_0, Some(GgmlDType::Q8_0)),
    (GgmlDType::Q5_1, Some(GgmlDType::Q5_0)),
    (GgmlDType::Q2K, Some(GgmlDType::Q3K)),
    (GgmlDType::Q3K, Some(GgmlDType::Q5_0)),
    (GgmlDType::Q4K, None),
    (GgmlDType::Q5K, None),
    (GgmlDType::Q6K, None),
    (GgmlDType::Q4K, Some(GgmlDType::Q6K)),
];

/// What a trial does with a backend of its own.
type Check = Box<dyn Fn(&Arc<dyn ComputeBackend>) -> anyhow::Result<()> + Send>;

fn main() {
    let mut arguments = Arguments::from_args();
    // Each trial keeps every core busy by itself.
    arguments.test_threads.get_or_insert(1);
    let trials = devices::selectors().iter().flat_map(|selector| device_trials(selector)).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn device_trials(selector: &str) -> Vec<Trial> {
    let trial = |name: &str, check: Check| {
        let selector = selector.to_owned();
        Trial::test(format!("{selector}::{name}"), move || {
            let run = || check(&Arc::from(devices::registry().create(&selector)?));
            run().map_err(|error| Failed::from(format!("{error:#}")))
        })
    };
    let mut trials = Vec::new();
    for architecture in ARCHITECTURES {
        trials.push(trial(
            &format!("architecture::{architecture}"),
            Box::new(move |backend| {
                texts(backend, &RandomModel::new(recipe(architecture, 64), GgmlDType::F32, None)?)
            }),
        ));
        trials.push(trial(
            &format!("half_activations::{architecture}"),
            Box::new(move |backend| half_activations::texts(backend, architecture)),
        ));
    }
    trials.push(trial("half_activations::dense_weights", Box::new(|_| half_activations::dense_weights())));
    trials.push(trial("half_activations::sums_beyond_f16", Box::new(half_activations::sums_beyond_f16)));
    for (kind, mixed) in FORMATS {
        let name = mixed.map(|mixed| format!("_{mixed:?}")).unwrap_or_default();
        let hidden = if kind.block_size() == 256 { 256 } else { 64 };
        trials.push(trial(
            &format!("format::{kind:?}{name}"),
            Box::new(move |backend| texts(backend, &RandomModel::new(recipe("llama", hidden), kind, mixed)?)),
        ));
    }
    trials.push(trial(
        "format::experts_Q4K_Q6K",
        Box::new(|backend| {
            let (kind, mixed) = (GgmlDType::Q4K, Some(GgmlDType::Q6K));
            texts(backend, &RandomModel::new(recipe("qwen3moe", 256), kind, mixed)?)
        }),
    ));
    trials.push(trial(
        "format::gpt_oss_Q4_0_Q8_0",
        Box::new(|backend| {
            let (kind, mixed) = (GgmlDType::Q4_0, Some(GgmlDType::Q8_0));
            texts(backend, &RandomModel::new(recipe("gpt-oss", 64), kind, mixed)?)
        }),
    ));
    // Rows of queries and keys are put in another order: of one tensor, and with biases and values in another type.
    // And layer norms, which no product with quants has.
    for (architecture, kind, mixed) in [
        ("phi3", GgmlDType::Q4_0, None),
        ("qwen2", GgmlDType::Q8_0, Some(GgmlDType::Q4_0)),
        ("cohere2", GgmlDType::Q8_0, None),
    ] {
        trials.push(trial(
            &format!("format::{architecture}_{kind:?}"),
            Box::new(move |backend| {
                texts(backend, &RandomModel::new(recipe(architecture, 64), kind, mixed)?)
            }),
        ));
    }
    trials.push(trial("not_finite::logits_are_refused", Box::new(not_finite::logits_are_refused)));
    trials.push(trial("not_finite::caches_forget", Box::new(not_finite::caches_forget)));
    trials.push(trial(
        "not_finite::overflows_within_a_call_are_refused",
        Box::new(not_finite::overflows_within_a_call_are_refused),
    ));
    trials.push(trial("tensors::missing_ones_are_named", Box::new(tensors::missing_tensors_are_named)));
    trials.push(trial("tensors::other_ones_are_refused", Box::new(tensors::other_tensors_are_refused)));
    trials.push(trial(
        "format::IQ4_XS",
        Box::new(|backend| {
            texts(backend, &RandomModel::new(recipe("llama", 256), writer::IQ4_XS, Some(GgmlDType::Q5K))?)
        }),
    ));
    for architecture in ["llama", "qwen3moe", "gpt-oss"] {
        trials.push(trial(
            &format!("format::MXFP4_{architecture}"),
            Box::new(move |backend| {
                texts(backend, &RandomModel::new(recipe(architecture, 64), writer::MXFP4, None)?)
            }),
        ));
    }
    trials.push(trial("a_cache_of_f16", Box::new(cache_of_f16)));
    trials.push(trial("a_cache_of_q8_0", Box::new(cache_of_q8_0)));
    trials.push(trial("greedy_text_is_candles", Box::new(greedy_text_is_candles)));
    trials.push(trial("sampled::texts_are_drawn", Box::new(sampled::texts_are_drawn)));
    trials.push(trial("sampled::a_seed_makes_one_text", Box::new(sampled::a_seed_makes_one_text)));
    trials.push(trial("sampled::wrong_texts_draw_nothing", Box::new(sampled::wrong_texts)));
    trials.push(trial("failed_decoding_adds_nothing", Box::new(failed_decoding_adds_nothing)));
    // Windows, layers without rotations, queries that grow, and norms before and after rotations.
    for architecture in ["gemma2", "smollm3", "mistral3", "qwen3", "hunyuan-dense", "cohere2"] {
        trials.push(trial(
            &format!("long_texts_cross_pages_and_passes::{architecture}"),
            Box::new(move |backend| long_texts(backend, architecture)),
        ));
    }
    trials.push(trial("wrong_steps_are_refused", Box::new(wrong_steps)));
    trials.push(trial("every_buffer_is_freed", Box::new(every_buffer_is_freed)));
    trials.push(trial("failing::nothing_is_left_behind", Box::new(failing::nothing_is_left_behind)));
    trials.push(trial("failing::sessions_go_on", Box::new(failing::sessions_go_on)));
    trials.push(trial("warm_up::any_length_is_taken", Box::new(warm_up::any_length_is_taken)));
    trials.push(trial(
        "warm_up::what_has_no_room_is_left_out",
        Box::new(warm_up::what_has_no_room_is_left_out),
    ));
    // Matrices that are uploaded in several pieces.
    for kind in [GgmlDType::Q8_0, GgmlDType::Q4_0] {
        let mut large = recipe("llama", 64);
        large.vocabulary = 30_000;
        trials.push(trial(
            &format!("format::large_{kind:?}"),
            Box::new(move |backend| texts(backend, &RandomModel::new(large.clone(), kind, None)?)),
        ));
    }
    if let Some(adapter) =
        selector.strip_prefix("webgpu").map(|adapter| adapter.trim_start_matches(':').to_owned())
    {
        trials.push(trial(
            "warm_up::texts_compile_nothing",
            Box::new(move |_| warm_up::texts_compile_nothing(&adapter)),
        ));
    }
    trials
}

fn load(backend: &Arc<dyn ComputeBackend>, model: &RandomModel) -> anyhow::Result<Arc<Model>> {
    let mut reported = (0, 0);
    let loaded = Model::load(backend, &Gguf::parse(&model.file)?, |done, total| reported = (done, total))?;
    ensure!(reported.0 == reported.1 && reported.1 > 0, "progress ended at {reported:?}");
    Ok(Arc::new(loaded))
}

/// A text of `length` tokens, another for each `seed`.
fn text(model: &RandomModel, seed: usize, length: usize) -> Vec<u32> {
    let vocabulary = model.recipe.vocabulary;
    (0..length).map(|i| ((i * (7 + 2 * seed) + i * i / 3 + seed) % vocabulary) as u32).collect()
}

/// Steps of many and of few tokens of three sequences, and captured ones, against the pass in f64.
fn texts(backend: &Arc<dyn ComputeBackend>, model: &RandomModel) -> anyhow::Result<()> {
    let loaded = load(backend, model)?;
    let options = SessionOptions::new(40).with_sequences(3).with_cache(model.recipe.cache);
    let mut session = Session::new(&loaded, options)?;
    let texts: Vec<Vec<u32>> = (0..3).map(|seed| text(model, seed, 16)).collect();
    let expected: Vec<_> =
        texts.iter().map(|text| oracle::log_probabilities(&model.recipe, &model.weights, text)).collect();

    // Of each sequence, how many tokens a step adds to it.
    for step in [[9, 0, 0], [1, 4, 0], [1, 1, 7], [0, 3, 1], [2, 1, 1]] {
        let added = |sequence: usize| session.len(sequence)..session.len(sequence) + step[sequence];
        // The last sequences first: the order of inputs is the caller's.
        let inputs: Vec<Input<'_>> = (0..3)
            .rev()
            .filter(|&sequence| step[sequence] > 0)
            .map(|sequence| Input { sequence, tokens: &texts[sequence][added(sequence)] })
            .collect();
        let logits = session.step(&inputs)?;
        let (rows, vocabulary) = (logits.to_vec()?, logits.vocabulary());
        for (row, input) in rows.chunks(vocabulary).zip(&inputs) {
            let last = session.len(input.sequence) - 1;
            compare(row, &expected[input.sequence][last])?;
        }
    }
    ensure!([0, 1, 2].map(|sequence| session.len(sequence)) == [13, 9, 9], "lengths");

    // Captured steps of two neighbours of different lengths, then of one.
    for _ in 0..2 {
        let next: Vec<u32> = [1, 2].iter().map(|&sequence| texts[sequence][session.len(sequence)]).collect();
        let rows = session.decode(1, &next)?;
        for (row, sequence) in rows.chunks(model.recipe.vocabulary).zip([1, 2]) {
            compare(row, &expected[sequence][session.len(sequence) - 1])?;
        }
    }
    for position in 13..16 {
        let row = session.decode(0, &texts[0][position..=position])?;
        compare(&row, &expected[0][position])?;
    }

    // Probabilities of a text that is there already up to its third token.
    session.truncate(2, 3);
    let log_p = session.log_probabilities(2, &texts[2][3..])?;
    ensure!(log_p.len() == 12, "{} probabilities", log_p.len());
    for (i, log_p) in log_p.iter().enumerate() {
        let expected = expected[2][3 + i][texts[2][4 + i] as usize];
        ensure!((f64::from(*log_p) - expected).abs() < TOLERANCE, "token {}: {log_p}, not {expected}", 4 + i);
    }
    Ok(())
}

/// Compares logits with logarithms of probabilities.
fn compare(logits: &[f32], expected: &[f64]) -> anyhow::Result<()> {
    let error = difference(logits, expected)?;
    // Written so that NaN fails.
    ensure!(error < TOLERANCE, "an error of {error}");
    Ok(())
}

/// The largest error of the logarithms of probabilities that logits mean.
fn difference(logits: &[f32], expected: &[f64]) -> anyhow::Result<f64> {
    ensure!(logits.len() == expected.len(), "{} logits", logits.len());
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total = logits.iter().map(|&x| f64::from(x - max).exp()).sum::<f64>().ln() + f64::from(max);
    let errors = logits.iter().zip(expected).map(|(&x, expected)| (f64::from(x) - total - expected).abs());
    errors
        .map(|error| if error.is_nan() { f64::INFINITY } else { error })
        .reduce(f64::max)
        .context("no logits")
}

/// Keys and values of f16, which a device may lack.
fn cache_of_f16(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let mut recipe = recipe("llama", 64);
    recipe.cache = DType::F16.into();
    let model = RandomModel::new(recipe, GgmlDType::F32, None)?;
    if backend.capabilities()?.f16 {
        return texts(backend, &model);
    }
    let session = Session::new(&load(backend, &model)?, SessionOptions::new(8).with_cache(DType::F16.into()));
    let refused = session.and_then(|mut session| session.step(&[Input { sequence: 0, tokens: &[1] }]));
    ensure!(refused.is_err(), "a device without f16 took it");
    Ok(())
}

/// Keys and values of 8 bits, side by side and apart, and of heads that blocks don't fit.
fn cache_of_q8_0(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    for (architecture, hidden) in [("llama", 128), ("qwen3", 64)] {
        let mut recipe = recipe(architecture, hidden);
        recipe.cache = KvFormat::Q8_0;
        let model = RandomModel::new(recipe, GgmlDType::F32, None)?;
        texts(backend, &model)?;
        // More tokens than attention reads blocks for.
        let text = text(&model, 1, 24);
        let expected = oracle::log_probabilities(&model.recipe, &model.weights, &text);
        let options = SessionOptions::new(40).with_cache(KvFormat::Q8_0);
        let mut session = Session::new(&load(backend, &model)?, options)?;
        for tokens in [0..3, 3..22, 22..23] {
            let last = tokens.end - 1;
            let logits = session.step(&[Input { sequence: 0, tokens: &text[tokens] }])?;
            compare(&logits.to_vec()?, &expected[last])?;
        }
        compare(&session.decode(0, &text[23..])?, &expected[23])?;
    }
    let small = RandomModel::new(recipe("llama", 64), GgmlDType::F32, None)?;
    let session = Session::new(&load(backend, &small)?, SessionOptions::new(8).with_cache(KvFormat::Q8_0));
    ensure!(matches!(session, Err(llama::Error::Argument { got: 16, .. })), "heads of 16");
    Ok(())
}

fn greedy_text_is_candles(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let model = RandomModel::new(recipe("llama", 64), GgmlDType::F32, None)?;
    let prompt = text(&model, 0, 5);
    let expected = candle::greedy(&model.file, &prompt, 64)?;

    let mut session =
        Session::new(&load(backend, &model)?, SessionOptions::new(80).with_cache(DType::F32.into()))?;
    let (last, before) = (prompt[4], &prompt[..4]);
    session.step(&[Input { sequence: 0, tokens: before }])?;
    let first = session.decode_greedy(0, &[last], 30)?;
    let rest = session.decode_greedy(0, &first[0][29..], 34)?;
    let got = [first[0].as_slice(), &rest[0]].concat();
    ensure!(got == expected, "{got:?}\nis not candle's {expected:?}");
    Ok(())
}

/// A text of several passes, whose captured steps change the page.
fn long_texts(backend: &Arc<dyn ComputeBackend>, architecture: &'static str) -> anyhow::Result<()> {
    let model = RandomModel::new(recipe(architecture, 64), GgmlDType::F32, None)?;
    let text = text(&model, 1, 530);
    let expected = oracle::log_probabilities(&model.recipe, &model.weights, &text);
    let options = SessionOptions::new(530).with_cache(DType::F32.into()).with_sequences(2);
    let mut session = Session::new(&load(backend, &model)?, options)?;
    let logits = session.step(&[Input { sequence: 1, tokens: &text[..254] }])?;
    compare(&logits.to_vec()?, &expected[253])?;
    for position in 254..259 {
        let logits = session.decode(1, &text[position..=position])?;
        compare(&logits, &expected[position])?;
    }
    let logits = session.step(&[Input { sequence: 0, tokens: &text[..527] }])?;
    compare(&logits.to_vec()?, &expected[526])?;
    let logits = session.decode(0, &text[527..528])?;
    compare(&logits, &expected[527])?;

    // As many rows as are normalised, rotated and appended in one launch, and one more.
    for rows in [64, 65] {
        session.truncate(1, 254);
        let logits = session.step(&[Input { sequence: 1, tokens: &text[254..254 + rows] }])?;
        compare(&logits.to_vec()?, &expected[253 + rows])?;
    }

    // Greedy steps of both beside each other and over the page's end, against one at a time.
    session.truncate(0, 250);
    session.truncate(1, 254);
    let both = session.decode_greedy(0, &[text[250], text[254]], 9)?;
    session.truncate(1, 254);
    let alone = session.decode_greedy(1, &[text[254]], 9)?;
    ensure!(both[1] == alone[0], "{both:?}, alone {alone:?}");
    let mut token = text[254];
    session.truncate(1, 254);
    for expected in &alone[0] {
        let logits = session.step(&[Input { sequence: 1, tokens: &[token] }])?.to_vec()?;
        token = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0) as u32;
        ensure!(token == *expected, "uncaptured steps choose {token}, captured ones {expected}");
    }
    Ok(())
}

fn wrong_steps(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let model = RandomModel::new(recipe("llama", 64), GgmlDType::F32, None)?;
    let loaded = load(backend, &model)?;
    ensure!(Session::new(&loaded, SessionOptions::new(0)).is_err(), "a context of no tokens");
    let words = Session::new(&loaded, SessionOptions::new(4).with_cache(DType::U32.into()));
    ensure!(matches!(words, Err(llama::Error::CacheType { .. })), "a cache of u32");
    let mut session = Session::new(&loaded, SessionOptions::new(4).with_sequences(2))?;
    let input = |sequence, tokens| Input { sequence, tokens };
    let wrong: [&[Input<'_>]; 5] = [
        &[input(2, &[1])],
        &[input(0, &[])],
        &[input(0, &[67])],
        &[input(0, &[1]), input(0, &[1])],
        &[input(0, &[1]), input(1, &[1, 2, 3, 4, 5])],
    ];
    for inputs in wrong {
        ensure!(session.step(inputs).is_err(), "{inputs:?} was taken");
        ensure!(session.is_empty(), "{inputs:?} added tokens");
    }
    ensure!(session.decode(0, &[1, 2, 3]).is_err(), "three of two sequences");
    ensure!(session.decode_greedy(usize::MAX, &[1], 2).is_err(), "a sequence that isn't there");
    ensure!(session.decode_greedy(0, &[67], 2).is_err(), "a token outside the vocabulary");
    ensure!(session.decode_greedy(0, &[1], 5).is_err(), "more than the context");
    ensure!(session.log_probabilities(0, &[1, 2, 3, 4, 5]).is_err(), "more than the context");
    ensure!(session.step(&[])?.to_vec()?.is_empty(), "logits of nothing");
    ensure!(session.decode(0, &[])?.is_empty(), "logits of nothing");
    ensure!(session.is_empty(), "tokens were added");
    Ok(())
}

/// There is memory for the first page's steps, which are captured by then, and none for the second's.
fn failed_decoding_adds_nothing(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let model = RandomModel::new(recipe("llama", 64), GgmlDType::F32, None)?;
    let mut session = Session::new(&load(backend, &model)?, SessionOptions::new(600))?;
    session.decode_greedy(0, &[1], 250)?;
    backend.set_memory_budget(Some(1))?;
    let failed = session.decode_greedy(0, &[2], 30);
    backend.set_memory_budget(None)?;
    ensure!(matches!(&failed, Err(llama::Error::Backend(_))), "it didn't run out of memory: {failed:?}");
    ensure!(session.len(0) == 250, "a failed call added {} tokens", session.len(0) - 250);
    session.decode_greedy(0, &[2], 30)?;
    ensure!(session.len(0) == 280, "30 tokens were added");
    Ok(())
}

fn every_buffer_is_freed(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let before = backend.memory_stats();
    let model = RandomModel::new(recipe("gemma3", 64), GgmlDType::Q8_0, None)?;
    let mut session = Session::new(&load(backend, &model)?, SessionOptions::new(16))?;
    session.decode_greedy(0, &[1], 3)?;
    session.log_probabilities(0, &[1, 2])?;
    ensure!(backend.memory_stats().handles > 0, "the weights have no handles");
    drop(session);
    let after = backend.memory_stats();
    ensure!((after.handles, after.in_use) == (before.handles, before.in_use), "left behind: {after:?}");
    Ok(())
}
