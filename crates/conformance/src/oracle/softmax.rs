//! Softmax.

use super::unary::exp_error;
use crate::float::{MIN_NORMAL_F32, ROUNDING, gamma};
use crate::want::Want;

/// How many roundings a sum of `n` exponentials makes when it is taken online: n − 1 additions, and where a block of
/// at least 8 raises the maximum, or partial sums of a tree are joined, an exponential (3 roundings) and a product.
pub(crate) fn online_sum_roundings(n: usize) -> usize {
    let rescalings = (n / 8 + 8).min(n.saturating_sub(1));
    n + 4 * rescalings
}

/// The softmax of `x`.
///
/// With d = x − max, an exponential has the relative error ε = |d|·2⁻²³ + (3 + 2|d|)·2⁻²³. The sum has that of its
/// terms weighted by their size, and its own roundings; a division, or a reciprocal and a product, adds 3.5.
pub(crate) fn softmax(x: &[f64]) -> Vec<Want> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, |a, b| if b.is_nan() { b } else { a.max(b) });
    if !max.is_finite() || x.iter().any(|x| x.is_nan()) {
        return vec![Want::Exact(f64::NAN); x.len()];
    }
    let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
    let p = |x: f64| (x - max).exp() / sum;
    let error = |x: f64| {
        if p(x) == 0.0 { 0.0 } else { (x - max).abs() * ROUNDING + exp_error(x - max) }
    };
    let sum_error: f64 =
        x.iter().map(|&x| p(x) * error(x)).sum::<f64>() + gamma(online_sum_roundings(x.len()));
    x.iter()
        .map(|&x| {
            let relative = error(x) + sum_error + 3.5 * ROUNDING;
            // Products of the small errors add less than one part in a thousand; exponentials may be flushed.
            Want::near(p(x), 1.001 * p(x) * relative + MIN_NORMAL_F32)
        })
        .collect()
}
