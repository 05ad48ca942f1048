//! Attention.

use super::softmax::online_sum_roundings;
use super::unary::exp_error;
use crate::float::{MIN_NORMAL_F32, ROUNDING, gamma};
use crate::want::Want;

/// One key that a query sees.
pub(crate) struct Seen<'a> {
    pub(crate) key: &'a [f64],
    pub(crate) value: &'a [f64],
    pub(crate) mask: f64,
}

/// The output vector of one query.
///
/// A score sᵢ = scale·q·kᵢ + maskᵢ has an error of at most eᵢ = γ(D + 3)·|scale|·Σ|q·kᵢ| + 2⁻²³·|maskᵢ|. Whatever is
/// subtracted as the maximum cancels in the quotient, so with d = sᵢ − max an exponent is off by at most
/// Eᵢ = eᵢ + 2⁻²³·(|d| + eᵢ + eₘ) and the exponential by a factor of exp(Eᵢ)·(1 + ε(d)). With Δpᵢ for the error of
/// pᵢ = exp(d), numerator N = Σ pᵢ·vᵢ and denominator S = Σ pᵢ are off by Σ Δpᵢ·|vᵢ| and Σ Δpᵢ besides their own
/// roundings (see [`online_sum_roundings`]; a product more in N), and the quotient by a division or a reciprocal and
/// a product.
pub(crate) fn attend(q: &[f64], seen: &[Seen<'_>], scale: f64) -> Vec<Want> {
    let scores: Vec<Score> = seen.iter().map(|seen| Score::new(q, seen, scale)).collect();
    let top =
        scores.iter().max_by(|a, b| a.value.total_cmp(&b.value)).filter(|top| top.value > f64::NEG_INFINITY);
    let Some(top) = top else {
        return vec![Want::number(0.0); q.len()];
    };
    let terms: Vec<Term> = scores.iter().map(|score| score.term(top)).collect();
    let roundings = gamma(online_sum_roundings(seen.len()) + 1);
    let s: f64 = terms.iter().map(|term| term.p).sum();
    let s_error: f64 = terms.iter().map(|term| term.error + roundings * (term.p + term.error)).sum();
    (0..q.len())
        .map(|i| {
            let (mut n, mut n_error) = (0.0, 0.0);
            for (term, seen) in terms.iter().zip(seen) {
                let v = seen.value[i];
                n += term.p * v;
                n_error += (term.error + roundings * (term.p + term.error)) * v.abs();
            }
            let out = n / s;
            let bound = if s_error < s {
                let quotient = (n_error + out.abs() * s_error) / (s - s_error);
                quotient + 3.5 * ROUNDING * (out.abs() + quotient)
            } else {
                f64::INFINITY
            };
            Want::near(out, bound)
        })
        .collect()
}

struct Score {
    value: f64,
    error: f64,
}

struct Term {
    p: f64,
    error: f64,
}

impl Score {
    fn new(q: &[f64], seen: &Seen<'_>, scale: f64) -> Self {
        let products = || q.iter().zip(seen.key).map(|(q, k)| q * k);
        let magnitude: f64 = products().map(f64::abs).sum();
        Self {
            value: scale * products().sum::<f64>() + seen.mask,
            error: gamma(q.len() + 3) * scale.abs() * magnitude + ROUNDING * seen.mask.abs(),
        }
    }

    fn term(&self, top: &Self) -> Term {
        if self.value == f64::NEG_INFINITY {
            return Term { p: 0.0, error: 0.0 };
        }
        let d = self.value - top.value;
        let exponent = self.error + ROUNDING * (d.abs() + self.error + top.error);
        let p = d.exp();
        // Written as a difference of exponentials, because exp(exponent) alone may overflow.
        let error = (d + exponent).exp() * (1.0 + exp_error(d.abs() + exponent)) - p;
        Term { p, error: if p == 0.0 && d < -1e3 { 0.0 } else { error } + MIN_NORMAL_F32 }
    }
}
