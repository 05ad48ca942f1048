//! Texts drawn at random on a device, against the probabilities of each token in f64.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use backend_api::random::{philox_block, uniforms};
use backend_api::{ComputeBackend, DType};
use backend_cpu::CpuBackend;
use candle_core::quantized::GgmlDType;
use llama::{Input, Sampler, Sampling, Session, SessionOptions};

use crate::random::RandomModel;
use crate::recipes::recipe;
use crate::{load, text};

/// Tolerance of a sum of probabilities on one device: logits and sums of f32 in two orders.
const NEAR: f64 = 1e-4;

/// Tolerance of a sum of probabilities from the logits of two devices, each within 2e-3 of the pass in f64.
const NEAR_OF_TWO_DEVICES: f64 = 1e-2;

fn sampling(change: impl FnOnce(&mut Sampling)) -> Sampling {
    let mut sampling = Sampling::default();
    (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) = (1.0, 0, 1.0, 0.0);
    change(&mut sampling);
    sampling
}

/// The random number at a place of a seed's stream.
fn number(seed: u64, at: u64) -> f64 {
    f64::from(uniforms(philox_block(seed, at / 4))[(at % 4) as usize])
}

/// The token that docs/operations.md says of `sample`.
fn chosen(s: &Sampling, logits: &[f64], [top_p, min_p, number]: [f64; 3]) -> u32 {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]).then(a.cmp(&b)));
    order.truncate(if s.top_k == 0 { logits.len() } else { s.top_k });
    if s.temperature == 0.0 {
        return order[0] as u32;
    }
    let weight = |place: usize| ((logits[order[place]] - logits[order[0]]) / f64::from(s.temperature)).exp();
    let all: f64 = (0..order.len()).map(weight).sum();
    let before = |place: usize| (0..place).map(weight).sum::<f64>();
    let stays = |place: usize| place == 0 || before(place) < top_p * all && weight(place) >= min_p;
    let kept = (0..order.len()).take_while(|&place| stays(place)).count();
    let place = (0..kept).find(|&place| before(place + 1) > number * before(kept));
    order[place.unwrap_or(kept - 1)] as u32
}

/// The tokens that may follow `seen`, for bounds and a number that are this near to the given ones.
fn possible(s: &Sampling, logits: &[f32], seen: &[u32], at: u64, near: f64) -> Vec<u32> {
    let mut logits: Vec<f64> = logits.iter().copied().map(f64::from).collect();
    let mut recent = seen[seen.len().saturating_sub(s.repetition_window)..].to_vec();
    recent.sort_unstable();
    recent.dedup();
    let penalty = f64::from(s.repetition_penalty);
    for token in recent {
        let logit = &mut logits[token as usize];
        *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
    }
    let around = |x: f64| [x - near, x, x + near];
    // 0 and 1 leave no token out, on any device.
    let bounds = |x: f64| if x > 0.0 && x < 1.0 { around(x) } else { [x; 3] };
    let mut tokens = Vec::new();
    for top_p in bounds(s.top_p.into()) {
        for min_p in bounds(s.min_p.into()) {
            for number in around(number(s.seed, at)) {
                tokens.push(chosen(s, &logits, [top_p, min_p, number]));
            }
        }
    }
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

/// Two sequences beside each other, whose tokens are drawn after a step and by calls of several tokens.
pub(crate) fn texts_are_drawn(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    // With softcaps, which change what is probable.
    let model = RandomModel::new(recipe("gemma2", 64), GgmlDType::F32, None)?;
    let loaded = load(backend, &model)?;
    for sampling in [
        Sampling::default(),
        sampling(|s| s.seed = 1 << 40),
        sampling(|s| (s.temperature, s.top_p, s.min_p, s.seed) = (1.5, 0.8, 0.1, 2)),
        sampling(|s| (s.repetition_penalty, s.repetition_window, s.seed) = (1.8, 5, 3)),
        sampling(|s| (s.repetition_penalty, s.temperature, s.top_k) = (2.5, 0.0, 7)),
    ] {
        let options = SessionOptions::new(40).with_sequences(2).with_cache(DType::F32.into());
        let mut session = Session::new(&loaded, options)?;
        let prompts = [text(&model, 0, 9), text(&model, 1, 3)];
        let mut sampler = Sampler::new(sampling);
        let input = |sequence: usize| Input { sequence, tokens: &prompts[sequence] };
        let logits = session.step(&[input(0), input(1)])?;
        let first = logits.sample(&mut sampler, &[&prompts[0], &prompts[1]])?;
        let mut texts = prompts.clone();
        texts.iter_mut().zip(first).for_each(|(text, token)| text.push(token));
        for count in [1, 12, 9] {
            let made = session.decode_sampled(0, &[&texts[0], &texts[1]], &mut sampler, count)?;
            ensure!(made.iter().all(|made| made.len() == count), "{count} tokens: {made:?}");
            texts.iter_mut().zip(made).for_each(|(text, made)| text.extend(made));
        }

        let mut certain = 0;
        for (row, (text, prompt)) in texts.iter().zip(&prompts).enumerate() {
            session.truncate(row, 0);
            let mut logits = session.step(&[Input { sequence: row, tokens: prompt }])?.to_vec()?;
            for (step, position) in (prompt.len()..text.len()).enumerate() {
                let at = (2 * step + row) as u64;
                let (seen, token) = (&text[..position], text[position]);
                let possible = possible(&sampling, &logits, seen, at, NEAR);
                ensure!(
                    possible.contains(&token),
                    "{sampling:?}, token {step} is {token}, not of {possible:?}"
                );
                certain += usize::from(possible.len() == 1);
                logits = session.decode(row, &[token])?;
            }
        }
        ensure!(certain >= 40, "of 46 tokens, {certain} tell something");
    }
    Ok(())
}

/// One call or many, and the host's sampler over the logits, make one text; with a temperature of 0 the greedy one.
pub(crate) fn a_seed_makes_one_text(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    const COUNT: usize = 30;
    let model = RandomModel::new(recipe("llama", 64), GgmlDType::F32, None)?;
    // Text crosses the end of a page of the caches.
    let prompt = text(&model, 2, 250);
    let (last, before) = (&prompt[249..], &prompt[..249]);
    // Below 1, logits are far apart.
    let sampling = sampling(|s| (s.temperature, s.repetition_penalty, s.seed) = (0.2, 1.1, 11));
    let made = |backend: &Arc<dyn ComputeBackend>, sampling: Sampling, counts: &[usize]| {
        let options = SessionOptions::new(300).with_cache(DType::F32.into());
        let mut session = Session::new(&load(backend, &model)?, options)?;
        session.step(&[Input { sequence: 0, tokens: before }])?;
        let (mut text, mut sampler) = (prompt.clone(), Sampler::new(sampling));
        for &count in counts {
            let made = session.decode_sampled(0, &[&text], &mut sampler, count)?;
            text.extend(made.into_iter().flatten());
        }
        anyhow::Ok(text[prompt.len()..].to_vec())
    };
    let drawn = made(backend, sampling, &[COUNT])?;
    ensure!(made(backend, sampling, &[3, 1, 20, 6])? == drawn, "several calls make another text");
    let mut other = sampling;
    other.seed += 1;
    ensure!(made(backend, other, &[COUNT])? != drawn, "another seed makes the same text");

    // The host, with logits of the CPU's backend, where they leave no doubt.
    let cpu: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let options = SessionOptions::new(300).with_cache(DType::F32.into());
    let mut session = Session::new(&load(&cpu, &model)?, options)?;
    let mut compared = 0;
    for seed in 0..5 {
        let mut sampling = sampling;
        sampling.seed = seed;
        session.truncate(0, 0);
        let mut logits = session.step(&[Input { sequence: 0, tokens: &prompt }])?.to_vec()?;
        let (mut seen, mut sampler) = (prompt.clone(), Sampler::new(sampling));
        for (at, token) in (0..).zip(made(backend, sampling, &[COUNT])?) {
            let possible = possible(&sampling, &logits, &seen, at, NEAR_OF_TWO_DEVICES);
            let expected = sampler.choose(&logits, &seen);
            ensure!(possible.contains(&token), "token {at} is {token}, not of {possible:?}");
            if possible.len() == 1 {
                ensure!(token == expected, "token {at} is {token}, the host's {expected}");
                compared += 1;
            }
            seen.push(token);
            logits = session.decode(0, &[token])?;
        }
    }
    ensure!(compared >= 3 * COUNT, "of {} tokens, {compared} leave no doubt", 5 * COUNT);

    let mut greedy = Session::new(&load(backend, &model)?, options)?;
    greedy.step(&[Input { sequence: 0, tokens: before }])?;
    let expected = greedy.decode_greedy(0, last, COUNT)?.pop().context("a sequence")?;
    ensure!(made(backend, Sampling::greedy(), &[COUNT])? == expected, "a temperature of 0 isn't greedy");
    Ok(())
}

/// A call that fails adds nothing and draws nothing.
pub(crate) fn wrong_texts(backend: &Arc<dyn ComputeBackend>) -> anyhow::Result<()> {
    let model = RandomModel::new(recipe("llama", 64), GgmlDType::F32, None)?;
    let options = SessionOptions::new(6).with_sequences(2);
    let mut session = Session::new(&load(backend, &model)?, options)?;
    let mut sampler = Sampler::new(sampling(|s| s.seed = 5));
    let wrong: [(usize, &[&[u32]], usize); 4] =
        [(0, &[&[]], 1), (1, &[&[1], &[2]], 1), (0, &[&[67]], 1), (0, &[&[1]], 7)];
    for (sequence, texts, count) in wrong {
        let made = session.decode_sampled(sequence, texts, &mut sampler, count);
        ensure!(made.is_err() && session.is_empty(), "{texts:?} gave {made:?}");
    }
    let logits = session.step(&[Input { sequence: 0, tokens: &[1] }])?;
    ensure!(logits.sample(&mut sampler, &[]).is_err(), "no text for a row");
    let made = logits.sample(&mut sampler, &[&[1]])?;
    let expected = possible(sampler.sampling(), &logits.to_vec()?, &[1], 0, NEAR);
    ensure!(expected.contains(&made[0]), "the first number was used up: {made:?}, not of {expected:?}");
    Ok(())
}
