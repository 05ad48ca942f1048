//! The tokens that a draw may give.

use std::collections::BTreeSet;

use backend_api::desc::SampleDesc;
use backend_api::{DType, random};

use super::expected::{Bytes, Expected};
use crate::want::Want;

/// The relative error of sums of weights: that of exp((l − l₀)/T), whose argument is rounded twice, is within
/// (3 + 4·|x|)·2⁻²³, at most 4·10⁻⁵ for x ≥ −86, and weights that count are larger; then come the sums.
const SLACK: f64 = 5e-5;

/// The tokens that may be drawn from a row with the number `u`, one but where sums come near to a bound.
pub(crate) fn tokens(desc: &SampleDesc, logits: &[f64], window: &[f64], u: f64) -> Vec<usize> {
    let single = |x: f64| f64::from(x as f32);
    // Positive numbers stay positive and finite.
    let positive = |x: f64| single(x).clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX));
    let penalty = desc.repetition.map(|repetition| repetition.penalty);
    let penalty = penalty.filter(|&penalty| penalty > 0.0).map_or(1.0, positive);
    let penalised = |(token, &logit): (usize, &f64)| {
        let is_recent = window.contains(&(token as f64));
        let logit = match logit {
            _ if logit.is_nan() => f64::NEG_INFINITY,
            _ if !is_recent => logit,
            _ if logit > 0.0 => logit / penalty,
            _ => logit * penalty,
        };
        (single(logit), token)
    };
    let mut order: Vec<(f64, usize)> = logits.iter().enumerate().map(penalised).collect();
    // Stable, and no number is NaN.
    order.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(std::cmp::Ordering::Equal));
    let first = order[0].0;
    let is_greedy = desc.temperature <= 0.0 || desc.temperature.is_nan();
    if is_greedy || !first.is_finite() {
        // A penalised logit may be rounded either way, and so become another's equal.
        let near =
            order.iter().take_while(|(logit, _)| *logit == first || first - logit <= 1e-6 * first.abs());
        let ties = near.map(|&(_, token)| token);
        return if penalty == 1.0 { vec![order[0].1] } else { ties.collect() };
    }
    if desc.top_k > 0 {
        order.truncate(desc.top_k);
    }
    let temperature = positive(desc.temperature);
    let weights: Vec<f64> = order.iter().map(|(logit, _)| ((logit - first) / temperature).exp()).collect();
    let all: f64 = weights.iter().sum();
    let share = if desc.top_p.is_nan() { 1.0 } else { desc.top_p } * all;
    let min_p = if desc.min_p.is_nan() { 0.0 } else { desc.min_p.min(1.0) };
    // How many are kept, with every bound a little lower and a little higher.
    let kept = |slack: f64| {
        let mut before = 0.0;
        let fits =
            |weight: f64, before: f64| before < share * (1.0 + slack) && weight >= min_p * (1.0 - slack);
        let count = weights.iter().take_while(|&&weight| {
            let fits = fits(weight, before);
            before += weight;
            fits
        });
        count.count().max(1)
    };
    let (fewest, most) = (kept(-SLACK), kept(SLACK));
    // The sum of the weights before each place, and of all.
    let mut before = vec![0.0];
    weights.iter().for_each(|weight| before.push(before[before.len() - 1] + weight));
    let mut found = BTreeSet::new();
    for count in fewest..=most {
        let (sum, after) = (before[count], &before[1..=count]);
        let bound = u * sum;
        let first = after.partition_point(|after| after + SLACK * sum < bound);
        let places = (first..count).take_while(|&place| before[place] - SLACK * sum <= bound);
        // Tokens of weight 0 are never drawn, however near to the end u is.
        found.extend(places.filter(|&place| weights[place] > 0.0).map(|place| order[place].1));
    }
    found.into_iter().collect()
}

pub(super) fn expect_sample(desc: &SampleDesc, memory: &Bytes) -> Expected {
    let &SampleDesc { rows, columns, .. } = desc;
    let logits = memory.numbers(desc.logits, desc.dtype);
    let repetition = desc.repetition;
    let window = memory.optional(repetition.map(|repetition| repetition.window), DType::I32);
    let len = repetition.map_or(0, |repetition| repetition.len);
    let first = desc.offset.wrapping_add(memory.word_pair(desc.offset_ptr));
    let wants = (0..rows).map(|row| {
        let at = first.wrapping_add(row as u64);
        let number = random::uniforms(random::philox_block(desc.seed, at / 4))[(at % 4) as usize];
        let row_logits = &logits[row * columns..][..columns];
        let possible = tokens(desc, row_logits, &window[row * len..][..len], f64::from(number));
        Want::AnyOf(possible.into_iter().map(|token| Want::Exact(token as f64)).collect())
    });
    Expected::packed(desc.tokens, DType::I32, wants)
}
