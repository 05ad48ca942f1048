//! Softmax.

use std::cmp::Ordering;

use backend_api::desc::{SoftmaxBackwardDesc, SoftmaxDesc, SoftmaxOver, TopKDesc};

use super::expected::{Bytes, Expected};
use super::reduce::slice;
use super::unary::exp_error;
use crate::float::{MIN_NORMAL_F32, ROUNDING, gamma, sum_error, ulp_f32};
use crate::want::Want;

/// How many roundings a sum of `n` exponentials makes when it is taken online: n − 1 additions, and where a
/// block of at least 8 raises the maximum, or partial sums of a tree are joined, an exponential (3 roundings)
/// and a product.
pub(crate) fn online_sum_roundings(n: usize) -> usize {
    let rescalings = (n / 8 + 8).min(n.saturating_sub(1));
    n + 4 * rescalings
}

/// The logarithm of the softmax of `x`: (x − max) − ln sum. Both differences are rounded, the sum has the
/// relative error that [`softmax`] explains, and its logarithm is off by 2⁻²¹ or 3 units in the last place.
pub(crate) fn log_softmax(x: &[f64]) -> Vec<Want> {
    let Some((max, sum, sum_error)) = sum(x) else {
        return vec![Want::Exact(f64::NAN); x.len()];
    };
    let log = sum.ln();
    let log_error = 1.001 * sum_error + 2f64.powi(-21).max(3.0 * ulp_f32(log));
    x.iter()
        .map(|&x| {
            let value = x - max - log;
            if value == f64::NEG_INFINITY {
                return Want::Exact(value);
            }
            Want::near(value, log_error + ROUNDING * ((x - max).abs() + value.abs() + log_error))
        })
        .collect()
}

/// Whether the sum of the exponentials of `x` counts the numbers that are `max`: exp(0) is 1, and all others
/// vanish.
pub(super) fn counts(x: &[f64], max: f64) -> bool {
    x.len() <= 1 << 24 && x.iter().all(|&x| x == max || x - max < -200.0)
}

/// The maximum, the sum of exponentials and its relative error; none for a slice whose softmax is NaN.
fn sum(x: &[f64]) -> Option<(f64, f64, f64)> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, |a, b| if b.is_nan() { b } else { a.max(b) });
    if !max.is_finite() || x.iter().any(|x| x.is_nan()) {
        return None;
    }
    let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
    if counts(x, max) {
        return Some((max, sum, 0.0));
    }
    let error = x.iter().map(|&x| (x - max).exp() / sum * term_error(x - max)).sum::<f64>();
    Some((max, sum, error + gamma(online_sum_roundings(x.len()))))
}

/// The relative error of exp(d) with a rounded d; none where it vanishes.
fn term_error(d: f64) -> f64 {
    if d.exp() == 0.0 { 0.0 } else { d.abs() * ROUNDING + exp_error(d) }
}

/// The softmax of `x`.
///
/// With d = x − max, an exponential has the relative error ε = |d|·2⁻²³ + (3 + 2|d|)·2⁻²³. The sum has that
/// of its terms weighted by their size, and its own roundings; a division, or a reciprocal and a product,
/// adds 3.5.
pub(crate) fn softmax(x: &[f64]) -> Vec<Want> {
    let Some((max, sum, sum_error)) = sum(x) else {
        return vec![Want::Exact(f64::NAN); x.len()];
    };
    x.iter()
        .map(|&x| {
            let p = (x - max).exp() / sum;
            let error = if p == 0.0 { 0.0 } else { term_error(x - max) };
            let relative = error + sum_error + 3.5 * ROUNDING;
            // Products of the small errors add less than one part in a thousand; exponentials may be flushed.
            Want::near(p, 1.001 * p * relative + MIN_NORMAL_F32)
        })
        .collect()
}

/// The gradient of a softmax y, or of its logarithm, with respect to its input: y·(g − Σ g·y), or g −
/// exp(y)·Σ g.
///
/// A sum of n products is off by γ(n + 1) of their sizes, or exact; then come a difference and a product, or
/// an exponential (3 roundings and 2 for each unit of its argument), a product and a difference.
pub(crate) fn backward(y: &[f64], g: &[f64], log: bool) -> Vec<Want> {
    let terms = || y.iter().zip(g).map(|(y, g)| if log { *g } else { g * y });
    let sum: f64 = terms().sum();
    let sum_error = match sum_error(terms()) {
        0.0 => 0.0,
        error => error + ROUNDING * terms().map(f64::abs).sum::<f64>(),
    };
    y.iter()
        .zip(g)
        .map(|(&y, &g)| {
            let (value, bound) = if log {
                let p = y.exp();
                let product_error = p * (sum_error + (exp_error(y) + ROUNDING) * (sum.abs() + sum_error));
                (g - p * sum, product_error + ROUNDING * (g.abs() + p * sum.abs()))
            } else {
                let error = sum_error + 2.0 * ROUNDING * (g.abs() + sum.abs() + sum_error);
                (y * (g - sum), y.abs() * error)
            };
            Want::near(value, 1.001 * bound + 2.0 * MIN_NORMAL_F32)
        })
        .collect()
}

/// What `of` makes of each slice along the middle extent, where it lies.
fn slices(
    [outer, length, inner]: [usize; 3],
    mut of: impl FnMut([usize; 2]) -> Vec<Want>,
) -> Vec<(usize, Want)> {
    let mut wants = Vec::new();
    for at in 0..outer * inner {
        let (o, i) = (at / inner, at % inner);
        let place = |(k, want)| ((o * length + k) * inner + i, want);
        wants.extend(of([o, i]).into_iter().enumerate().map(place));
    }
    wants
}

pub(super) fn expect_softmax(desc: &SoftmaxDesc, memory: &Bytes) -> Expected {
    let SoftmaxDesc { outer, length, inner, log, .. } = *desc;
    let x = memory.numbers(desc.input, desc.dtype);
    let of = if log { log_softmax } else { softmax };
    let wants = slices([outer, length, inner], |at| of(&slice(&x, at, length, inner)));
    Expected::computed(desc.output, desc.dtype, wants)
}

/// The order of `top_k`'s contract: NaN is larger than +∞, and the zeros are equal.
fn order(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// The columns of the numbers of a row in `top_k`'s order.
pub(crate) fn places(row: &[f64], is_largest: bool) -> Vec<usize> {
    let mut places: Vec<usize> = (0..row.len()).collect();
    // Stable, so that equal numbers stay in the order of their places.
    places.sort_by(|&a, &b| if is_largest { order(row[b], row[a]) } else { order(row[a], row[b]) });
    places
}

/// What `top_k` makes of the numbers of a row at `places`.
pub(crate) fn probabilities(row: &[f64], places: &[usize], over: SoftmaxOver) -> Vec<Want> {
    let found: Vec<f64> = places.iter().map(|&place| row[place]).collect();
    match over {
        SoftmaxOver::Row => {
            let all = softmax(row);
            places.iter().map(|&place| all[place].clone()).collect()
        }
        // And what a later version adds.
        _ => softmax(&found),
    }
}

pub(super) fn expect_probabilities(
    desc: &TopKDesc,
    over: SoftmaxOver,
    values: u64,
    memory: &Bytes,
) -> Expected {
    let &TopKDesc { dtype, columns, k, .. } = desc;
    let x = memory.numbers(desc.input, dtype);
    let rows = x.chunks_exact(columns.max(1)).take(desc.rows);
    let wants = rows.flat_map(|row| probabilities(row, &places(row, desc.largest)[..k], over));
    Expected::computed(values, dtype, (0..).zip(wants).collect())
}

pub(super) fn expect_softmax_backward(desc: &SoftmaxBackwardDesc, memory: &Bytes) -> Expected {
    let SoftmaxBackwardDesc { outer, length, inner, log, .. } = *desc;
    let [y, g] = [desc.y, desc.grad_output].map(|ptr| memory.numbers(ptr, desc.dtype));
    let wants = slices([outer, length, inner], |at| {
        let [y, g] = [&y, &g].map(|values| slice(values, at, length, inner));
        backward(&y, &g, log)
    });
    Expected::computed(desc.grad_input, desc.dtype, wants)
}
