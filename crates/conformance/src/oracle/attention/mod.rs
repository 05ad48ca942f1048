//! Attention.

mod command;

use backend_api::DType;

use super::softmax::online_sum_roundings;
use super::unary::exp_error;
use crate::float::{MIN_NORMAL_F32, ROUNDING, gamma, overflow_threshold};
use crate::want::Want;

pub(super) use command::expect_attention;

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
    /// The score of a key more, whose value is 0.
    pub(crate) sink: Option<f64>,
    /// 0 for none.
    pub(crate) softcap: f64,
    /// Whether the weights may be rounded to f16, as they are for tensor cores.
    pub(crate) half_weights: bool,
    /// Whether any two scores are equal to the bit, or so far apart that one of their weights is 0: then
    /// weights have no error.
    pub(crate) distinct: bool,
}

impl Scores {
    /// A scale alone.
    pub(crate) const fn scaled(scale: f64) -> Self {
        Self { scale, sink: None, softcap: 0.0, half_weights: false, distinct: false }
    }
}

/// The output vector of one query, of `v_dim` elements.
///
/// A score sᵢ = scale·q·kᵢ + maskᵢ has an error of at most eᵢ = γ(D + 4)·|scale|·Σ|q·kᵢ| + 2·2⁻²³·|maskᵢ|,
/// also where it is formed in powers of two, with a product by log₂e more. With a softcap c it is
/// c·tanh(s/c), whose slope is at most 1, and which is off by 16·2⁻²³·c besides: c·(1 − 2/(exp(2s/c) + 1))
/// has an exponential, whose error of 3 + 2|x| units comes to less than 3 units of the quotient, a division
/// and three roundings. Whatever is subtracted as the maximum cancels in the quotient, so with d = sᵢ − max
/// an exponent is off by at most Eᵢ = eᵢ + 2⁻²³·(|d| + eᵢ + eₘ) and the exponential by a factor of (1 +
/// ε(d))·exp(Eᵢ); weights of f16 add half a unit of it, 2⁻¹¹, or of its smallest number, 2⁻²⁵. With Δpᵢ for
/// the error of pᵢ = exp(d), numerator N = Σ pᵢ·vᵢ and denominator S = Σ pᵢ are off by Σ Δpᵢ·|vᵢ| and Σ Δpᵢ
/// besides their own roundings (see [`online_sum_roundings`]; a product more in N), and the quotient by a
/// division or a reciprocal and a product.
///
/// A score that is NaN or +∞ makes the whole vector NaN; scores of −∞ have weights of 0, and the vector of a
/// query that has no others is 0. A sink is a score more whose value is 0. Other scores are
/// brought to its scale with as much as four roundings of the largest, and sums of their weights by an exponential.
/// A value that isn't finite makes its number of the vector that value, or NaN beside others, however small its
/// weight. A key that the mask hides takes no part in any of this.
pub(crate) fn attend(q: &[f64], seen: &[Seen<'_>], v_dim: usize, with: Scores) -> Vec<Want> {
    let seen: Vec<&Seen<'_>> = seen.iter().filter(|seen| !seen.is_hidden()).collect();
    let weights = Weights::new(q, &seen, with);
    let of_values = |i: usize| match &weights {
        Weights::Nan => Want::Exact(f64::NAN),
        Weights::None => Want::number(0.0),
        Weights::Terms { terms, .. } => {
            let values = seen.iter().map(|seen| seen.value[i]);
            weighted(terms, &values.chain(with.sink.map(|_| 0.0)).collect::<Vec<f64>>())
        }
    };
    let is_nan = matches!(weights, Weights::Nan);
    let unbounded = |i: usize| {
        let values = seen.iter().map(|seen| seen.value[i]).filter(|value| !value.is_finite());
        values.reduce(|a, b| a + b).filter(|_| !is_nan)
    };
    (0..v_dim).map(|i| unbounded(i).map_or_else(|| of_values(i), Want::Exact)).collect()
}

/// The mean of finite values by their weights.
fn weighted(terms: &[Term], values: &[f64]) -> Want {
    let roundings = gamma(online_sum_roundings(terms.len()) + 1);
    let error_of = |term: &Term| term.error + roundings * (term.p + term.error);
    let s: f64 = terms.iter().map(|term| term.p).sum();
    let s_error: f64 = terms.iter().map(error_of).sum();
    let (mut n, mut n_error) = (0.0, 0.0);
    for (term, v) in terms.iter().zip(values) {
        n += term.p * v;
        n_error += error_of(term) * v.abs();
    }
    let out = n / s;
    let bound = if s_error < s {
        let quotient = (n_error + out.abs() * s_error) / (s - s_error);
        quotient + 3.5 * ROUNDING * (out.abs() + quotient)
    } else {
        f64::INFINITY
    };
    Want::near(out, bound)
}

/// The logarithm of the sum of the exponentials of a query's scores: the largest score, plus that of the sum
/// relative to it. The sum has the relative error that [`attend`] explains; the logarithm is off by 2⁻²¹ or 3
/// units in the last place, and may be one to the base of 2, with a sum and a product. −∞ where all scores
/// are; NaN where one is NaN or +∞.
pub(crate) fn log_sum(q: &[f64], seen: &[Seen<'_>], with: Scores) -> Want {
    let with = Scores { half_weights: false, ..with };
    let seen: Vec<&Seen<'_>> = seen.iter().filter(|seen| !seen.is_hidden()).collect();
    let (top, terms) = match Weights::new(q, &seen, with) {
        Weights::None => return Want::Exact(f64::NEG_INFINITY),
        Weights::Nan => return Want::Exact(f64::NAN),
        Weights::Terms { top, terms } => (top, terms),
    };
    let roundings = gamma(online_sum_roundings(terms.len()));
    let s: f64 = terms.iter().map(|term| term.p).sum();
    let s_error: f64 = terms.iter().map(|term| term.error + roundings * (term.p + term.error)).sum();
    let (log, value) = (s.ln(), top.value + s.ln());
    let log_error = (s_error / (s - s_error)).max(0.0) + 2f64.powi(-21).max(3.0 * ROUNDING * log.abs());
    let bound = top.error + log_error + 3.0 * ROUNDING * (top.value.abs() + log.abs() + value.abs());
    Want::near(value, if s_error < s { bound } else { f64::INFINITY })
}

impl Seen<'_> {
    fn is_hidden(&self) -> bool {
        self.mask == f64::NEG_INFINITY
    }
}

/// What the scores of a query come to.
enum Weights {
    /// All are −∞, or there are none.
    None,
    /// Some score is NaN or +∞.
    Nan,
    /// The largest score and a term for each key.
    Terms { top: Score, terms: Vec<Term> },
}

impl Weights {
    fn new(q: &[f64], seen: &[&Seen<'_>], with: Scores) -> Self {
        let mut scores: Vec<Score> = seen.iter().map(|seen| Score::new(q, seen, with)).collect();
        scores.extend(with.sink.map(|sink| Score::of_sink(sink, &scores)));
        if scores.iter().any(|score| score.value.is_nan() || score.value == f64::INFINITY) {
            return Self::Nan;
        }
        match scores.iter().copied().max_by(|a, b| a.value.total_cmp(&b.value)) {
            Some(top) if top.value > f64::NEG_INFINITY => {
                Self::Terms { top, terms: scores.iter().map(|score| score.term(&top, with)).collect() }
            }
            _ => Self::None,
        }
    }
}

/// What f32 makes of a number that it has no room for.
fn in_f32(x: f64) -> f64 {
    if x.abs() >= overflow_threshold(DType::F32) { f64::INFINITY.copysign(x) } else { x }
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
            (in_f32(in_f32(scale) * in_f32(products().sum())), gamma(q.len() + 4) * scale.abs() * magnitude);
        if softcap != 0.0 {
            value = softcap * (value / softcap).tanh();
            error += 16.0 * ROUNDING * softcap.abs();
        }
        Self { value: in_f32(value + seen.mask), error: error + 2.0 * ROUNDING * seen.mask.abs() }
    }

    fn of_sink(value: f64, keys: &[Self]) -> Self {
        let finite = keys.iter().map(|key| key.value.abs()).filter(|value| value.is_finite());
        let top = finite.fold(0.0, f64::max);
        // Exponentials of less are 0.
        let exponent = (value.abs() + top).min(104.0);
        Self { value, error: 4.0 * ROUNDING * top + 2.0 * exp_error(exponent) }
    }

    fn term(&self, top: &Self, Scores { half_weights: half, distinct, .. }: Scores) -> Term {
        if distinct || self.value == f64::NEG_INFINITY {
            return Term { p: (self.value - top.value).exp(), error: 0.0 };
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::uniform;
    use crate::float::round_to;
    use crate::rng::Rng;

    /// A kernel that leaves out one key, or counts one twice, at the edge of a tile or of a piece of the
    /// keys.
    #[test]
    fn one_key_more_or_less_is_a_miss() {
        for (dtype, half_weights) in [(DType::F32, false), (DType::F16, true)] {
            for keys in [2, 16, 65, 129, 257, 300] {
                for d in [1, 5, 64, 128] {
                    let mut rng = Rng::from_name(&format!("{dtype} {keys} {d}"));
                    let mut vector = || uniform(&mut rng, dtype, d, -1.0, 1.0);
                    let q = vector();
                    let vectors: Vec<[Vec<f64>; 2]> = (0..keys).map(|_| [vector(), vector()]).collect();
                    let seen_of = |order: &[usize]| -> Vec<Seen<'_>> {
                        let seen =
                            |&at: &usize| Seen { key: &vectors[at][0], value: &vectors[at][1], mask: 0.0 };
                        order.iter().map(seen).collect()
                    };
                    let with = Scores { half_weights, ..Scores::scaled(1.0 / (d as f64).sqrt()) };
                    let all: Vec<usize> = (0..keys).collect();
                    let wants = attend(&q, &seen_of(&all), q.len(), with);
                    let lse = log_sum(&q, &seen_of(&all), with);
                    for edge in [0, keys / 2, keys - 1] {
                        let without: Vec<usize> = all.iter().copied().filter(|&key| key != edge).collect();
                        let twice: Vec<usize> = all.iter().copied().chain([edge]).collect();
                        for wrong in [without, twice] {
                            let sum = log_sum(&q, &seen_of(&wrong), with).value().unwrap_or(f64::NAN);
                            assert!(lse.miss(sum, DType::F32) > 1.0, "lse of {dtype} {keys} {d} {edge}");
                            // One number alone may be as near to the mean as to tell nothing.
                            if d > 1 {
                                let outputs = attend(&q, &seen_of(&wrong), q.len(), with);
                                let is_miss = wants.iter().zip(&outputs).any(|(want, output)| {
                                    let got = output.value().unwrap_or(f64::NAN);
                                    want.miss(round_to(dtype, got), dtype) > 1.0
                                });
                                assert!(is_miss, "output of {dtype} {keys} {d} {edge}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn hidden_keys_and_what_is_not_finite() {
        const INF: f64 = f64::INFINITY;
        let out = |scores: &[f64], values: &[f64], mask: &[f64]| -> [f64; 2] {
            let (keys, values): (Vec<[f64; 1]>, Vec<[f64; 1]>) =
                scores.iter().zip(values).map(|(&score, &value)| ([score], [value])).unzip();
            let seen: Vec<Seen<'_>> =
                (0..scores.len()).map(|i| Seen { key: &keys[i], value: &values[i], mask: mask[i] }).collect();
            let with = Scores { distinct: true, ..Scores::scaled(1.0) };
            [attend(&[1.0], &seen, 1, with)[0].clone(), log_sum(&[1.0], &seen, with)]
                .map(|want| want.value().unwrap_or(12345.0))
        };
        let assert = |scores: &[f64], values: &[f64], mask: &[f64], wanted: [f64; 2]| {
            let found = out(scores, values, mask);
            let is_same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
            assert!(found.iter().zip(&wanted).all(is_same), "{scores:?} {values:?} {mask:?}: {found:?}");
        };
        let nan = f64::NAN;
        assert(&[0.0, nan], &[3.0, nan], &[0.0, -INF], [3.0, 0.0]);
        assert(&[0.0, nan], &[3.0, 1.0], &[0.0, 0.0], [nan, nan]);
        assert(&[0.0, INF], &[3.0, 1.0], &[0.0, 0.0], [nan, nan]);
        assert(&[0.0, 1.0], &[3.0, 1.0], &[0.0, INF], [nan, nan]);
        assert(&[0.0, -INF], &[3.0, 1.0], &[0.0, 0.0], [3.0, 0.0]);
        assert(&[-INF, -INF], &[3.0, 1.0], &[0.0, 0.0], [0.0, -INF]);
        assert(&[-1e39, -1e38], &[3.0, 1.0], &[0.0, 0.0], [1.0, -1e38]);
        assert(&[1e39, 0.0], &[3.0, 1.0], &[0.0, 0.0], [nan, nan]);
        assert(&[0.0, -1e30], &[3.0, INF], &[0.0, 0.0], [INF, 0.0]);
        assert(&[0.0, 0.0], &[-INF, INF], &[0.0, 0.0], [nan, 2f64.ln()]);
    }
}
