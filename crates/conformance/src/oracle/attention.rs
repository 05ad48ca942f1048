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

/// What a score is made with besides q, k and the mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scores {
    pub(crate) scale: f64,
    /// 0 for none.
    pub(crate) softcap: f64,
    /// Whether the weights may be rounded to f16, as they are for matrix units.
    pub(crate) half_weights: bool,
}

impl Scores {
    /// A scale alone.
    pub(crate) const fn scaled(scale: f64) -> Self {
        Self { scale, softcap: 0.0, half_weights: false }
    }
}

/// The output vector of one query.
///
/// A score sᵢ = scale·q·kᵢ + maskᵢ has an error of at most eᵢ = γ(D + 4)·|scale|·Σ|q·kᵢ| + 2·2⁻²³·|maskᵢ|, also where it is
/// formed in powers of two, with a product by log₂e more. With a softcap c it is c·tanh(s/c), whose slope is at most 1,
/// and which is off by 16·2⁻²³·c besides: c·(1 − 2/(exp(2s/c) + 1)) has an exponential, whose error of 3 + 2|x| units
/// comes to less than 3 units of the quotient, a division and three roundings. Whatever is subtracted as the maximum
/// cancels in the quotient, so with d = sᵢ − max an exponent is off by at most Eᵢ = eᵢ + 2⁻²³·(|d| + eᵢ + eₘ) and the
/// exponential by a factor of exp(Eᵢ)·(1 + ε(d)); weights of f16 add half a unit of it, 2⁻¹¹, or of its smallest number,
/// 2⁻²⁵. With Δpᵢ for the error of pᵢ = exp(d), numerator N = Σ pᵢ·vᵢ and denominator S = Σ pᵢ are off by Σ Δpᵢ·|vᵢ| and
/// Σ Δpᵢ besides their own roundings (see [`online_sum_roundings`]; a product more in N), and the quotient by a division
/// or a reciprocal and a product.
pub(crate) fn attend(q: &[f64], seen: &[Seen<'_>], with: Scores) -> Vec<Want> {
    let Some((_, terms)) = terms(q, seen, with) else {
        return vec![Want::number(0.0); q.len()];
    };
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

/// The logarithm of the sum of the exponentials of a query's scores: the largest score, plus that of the sum relative to
/// it. The sum has the relative error that [`attend`] explains; the logarithm is off by 2⁻²¹ or 3 units in the last place,
/// and may be one to the base of 2, with a sum and a product.
pub(crate) fn log_sum(q: &[f64], seen: &[Seen<'_>], with: Scores) -> Want {
    let with = Scores { half_weights: false, ..with };
    let Some((top, terms)) = terms(q, seen, with) else {
        return Want::Exact(f64::NEG_INFINITY);
    };
    let roundings = gamma(online_sum_roundings(seen.len()));
    let s: f64 = terms.iter().map(|term| term.p).sum();
    let s_error: f64 = terms.iter().map(|term| term.error + roundings * (term.p + term.error)).sum();
    let (log, value) = (s.ln(), top.value + s.ln());
    let log_error = (s_error / (s - s_error)).max(0.0) + 2f64.powi(-21).max(3.0 * ROUNDING * log.abs());
    let bound = top.error + log_error + 3.0 * ROUNDING * (top.value.abs() + log.abs() + value.abs());
    Want::near(value, if s_error < s { bound } else { f64::INFINITY })
}

/// The largest score and a term for each key; none if no key is seen.
fn terms(q: &[f64], seen: &[Seen<'_>], with: Scores) -> Option<(Score, Vec<Term>)> {
    let scores: Vec<Score> = seen.iter().map(|seen| Score::new(q, seen, with)).collect();
    let top = *scores.iter().max_by(|a, b| a.value.total_cmp(&b.value))?;
    if top.value == f64::NEG_INFINITY {
        return None;
    }
    Some((top, scores.iter().map(|score| score.term(&top, with.half_weights)).collect()))
}

#[derive(Clone, Copy)]
struct Score {
    value: f64,
    error: f64,
}

struct Term {
    p: f64,
    error: f64,
}

impl Score {
    fn new(q: &[f64], seen: &Seen<'_>, Scores { scale, softcap, .. }: Scores) -> Self {
        let products = || q.iter().zip(seen.key).map(|(q, k)| q * k);
        let magnitude: f64 = products().map(f64::abs).sum();
        let (mut value, mut error) =
            (scale * products().sum::<f64>(), gamma(q.len() + 4) * scale.abs() * magnitude);
        if softcap != 0.0 {
            value = softcap * (value / softcap).tanh();
            error += 16.0 * ROUNDING * softcap.abs();
        }
        Self { value: value + seen.mask, error: error + 2.0 * ROUNDING * seen.mask.abs() }
    }

    fn term(&self, top: &Self, half: bool) -> Term {
        if self.value == f64::NEG_INFINITY {
            return Term { p: 0.0, error: 0.0 };
        }
        let d = self.value - top.value;
        let exponent = self.error + ROUNDING * (d.abs() + self.error + top.error);
        let p = d.exp();
        // Written as a difference of exponentials, because exp(exponent) alone may overflow.
        let error = (d + exponent).exp() * (1.0 + exp_error(d.abs() + exponent)) - p;
        let error = if p == 0.0 && d < -1e3 { 0.0 } else { error };
        let rounding = if half { (p + error) * 2f64.powi(-11) + 2f64.powi(-25) } else { 0.0 };
        Term { p, error: error + rounding + MIN_NORMAL_F32 }
    }
}
