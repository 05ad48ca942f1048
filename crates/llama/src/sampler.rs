//! The choice of a token from logits.

use backend_api::DType;
use backend_api::desc::{RepetitionPenalty, SampleDesc};
use backend_api::random::{philox_block, uniforms};

use crate::{Error, Result};

/// The longest window of the operation `sample`.
const MAX_WINDOW: usize = 32_768;

/// What is done to logits before one is chosen, in the order of the fields, which is that of the operation `sample`
/// of the contract and of Hugging Face's transformers. llama.cpp divides by the temperature at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
    /// Divides positive and multiplies negative logits of recent tokens; 1 for none (Keskar et al., "CTRL", 2019).
    pub repetition_penalty: f32,
    /// How many tokens are recent, at most 32,768 for choices on the device.
    pub repetition_window: usize,
    /// How many of the most probable tokens stay; 0 for all.
    pub top_k: usize,
    /// Divides the logits, from which the probabilities of those that stay follow; with 0, the most probable token
    /// is chosen.
    pub temperature: f32,
    /// The most probable tokens stay whose probabilities add up to this (Holtzman et al., 2020); 1 for all.
    pub top_p: f32,
    /// Tokens stay that are at least this fraction as probable as the most probable one; 0 for all.
    pub min_p: f32,
    /// Of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            repetition_penalty: 1.0,
            repetition_window: 64,
            top_k: 40,
            temperature: 0.8,
            top_p: 0.95,
            min_p: 0.05,
            seed: 0,
        }
    }
}

impl Sampling {
    /// Always the most probable token.
    #[must_use]
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Whether always the most probable token is chosen, which takes no more than the largest logit.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0 && self.window() == 0
    }

    /// How many tokens have their logits changed at most.
    pub(crate) fn window(&self) -> usize {
        if self.repetition_penalty == 1.0 { 0 } else { self.repetition_window }
    }

    /// Refuses a window that no device looks at.
    pub(crate) fn check(&self) -> Result<()> {
        if self.window() <= MAX_WINDOW {
            return Ok(());
        }
        let expected = format!("at most {MAX_WINDOW}");
        Err(Error::Argument { what: "the repetition window", expected, got: self.window() })
    }

    /// The operation for `[rows, columns]` of f32; `window` is the handle of `[rows, len]` recent tokens.
    pub(crate) fn describe(
        &self,
        [logits, tokens]: [u64; 2],
        [rows, columns]: [usize; 2],
        window: Option<(u64, usize)>,
    ) -> SampleDesc {
        let mut desc = SampleDesc::new(DType::F32, logits, tokens, rows, columns, self.seed)
            .with_temperature(self.temperature.into())
            .with_top_k(self.top_k)
            .with_top_p(self.top_p.into())
            .with_min_p(self.min_p.into());
        let penalty = self.repetition_penalty.into();
        desc.repetition = window.map(|(window, len)| RepetitionPenalty { window, len, penalty });
        desc
    }
}

/// Chooses tokens, each with the next number of the seed's stream: of the same logits, the same seed chooses the same
/// tokens, here and on every device but where a sum of probabilities is within some 10⁻⁵ of that number.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    drawn: u64,
}

impl Sampler {
    /// A sampler at the start of its random numbers.
    #[must_use]
    pub const fn new(sampling: Sampling) -> Self {
        Self { sampling, drawn: 0 }
    }

    /// What it does.
    #[must_use]
    pub const fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// Random numbers that are used up: the place of the next one.
    pub(crate) const fn drawn(&self) -> u64 {
        self.drawn
    }

    /// Goes to another place of the random numbers.
    pub(crate) const fn seek(&mut self, drawn: u64) {
        self.drawn = drawn;
    }

    /// A token by its logits, after `recent` tokens, on the host. What [`Session::decode_sampled`] chooses on the
    /// device needs no logits here. NaN counts as −∞; without any logit, 0 is chosen.
    ///
    /// [`Session::decode_sampled`]: crate::Session::decode_sampled
    pub fn choose(&mut self, logits: &[f32], recent: &[u32]) -> u32 {
        let number = self.uniform();
        let desc = self.sampling.describe([0; 2], [1, logits.len()], Some((0, 0)));
        let [temperature, top_p, min_p, penalty] = desc.numbers().map(f64::from);
        let mut left: Vec<(u32, f64)> = (0u32..).zip(logits.iter().copied().map(f64::from)).collect();
        self.penalise(&mut left, recent, penalty);
        for (_, logit) in &mut left {
            *logit = if logit.is_nan() { f64::NEG_INFINITY } else { *logit };
        }
        // Zeros of both signs are equal.
        let by_logit =
            |a: &(u32, f64), b: &(u32, f64)| (b.1 + 0.0).total_cmp(&(a.1 + 0.0)).then(a.0.cmp(&b.0));
        let kept = desc.kept();
        if kept < left.len() {
            left.select_nth_unstable_by(kept, by_logit);
            left.truncate(kept);
        }
        left.sort_unstable_by(by_logit);
        let Some(&(first, best)) = left.first() else { return 0 };
        if temperature == 0.0 || !best.is_finite() {
            return first;
        }
        let weights: Vec<f64> = left.iter().map(|&(_, logit)| ((logit - best) / temperature).exp()).collect();
        let share = top_p * weights.iter().sum::<f64>();
        let mut sum = 0.0;
        let stays = weights.iter().enumerate().take_while(|&(place, &weight)| {
            let stays = place == 0 || sum < share && weight >= min_p;
            sum += if stays { weight } else { 0.0 };
            stays
        });
        let stays = stays.count();
        let (bound, mut before) = (number * sum, 0.0);
        let chosen = weights[..stays].iter().position(|weight| {
            before += weight;
            before > bound
        });
        left.get(chosen.unwrap_or(stays - 1)).map_or(first, |&(token, _)| token)
    }

    fn penalise(&self, left: &mut [(u32, f64)], recent: &[u32], penalty: f64) {
        let mut recent = recent[recent.len().saturating_sub(self.sampling.window())..].to_vec();
        recent.sort_unstable();
        recent.dedup();
        for token in recent {
            if let Some((_, logit)) = left.get_mut(token as usize) {
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
        }
    }

    /// The next number, uniform in [0, 1).
    fn uniform(&mut self) -> f64 {
        let numbers = uniforms(philox_block(self.sampling.seed, self.drawn / 4));
        let number = numbers[(self.drawn % 4) as usize];
        self.drawn = self.drawn.wrapping_add(1);
        f64::from(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of the logits is chosen among 4,000.
    fn counts(sampling: Sampling, logits: &[f32], recent: &[u32]) -> Vec<usize> {
        let mut sampler = Sampler::new(sampling);
        let mut counts = vec![0; logits.len()];
        (0..4000).for_each(|_| counts[sampler.choose(logits, recent) as usize] += 1);
        counts
    }

    fn all() -> Sampling {
        Sampling { top_k: 0, top_p: 1.0, min_p: 0.0, temperature: 1.0, ..Sampling::default() }
    }

    const LOGITS: [f32; 5] = [1.0, 3.0, f32::NAN, 2.0, f32::NEG_INFINITY];

    #[test]
    fn tokens_are_as_frequent_as_probable() {
        let counts = counts(all(), &LOGITS, &[]);
        let total = 1f64.exp() + 2f64.exp() + 3f64.exp();
        for (token, logit) in [(0, 1f64), (1, 3.0), (3, 2.0)] {
            let expected = 4000.0 * logit.exp() / total;
            // Four standard errors of a count are at most 127.
            assert!((counts[token] as f64 - expected).abs() < 127.0, "{token}: {counts:?}");
        }
        assert_eq!([counts[2], counts[4]], [0, 0]);
    }

    #[test]
    fn each_bound_leaves_the_best() {
        for sampling in [
            Sampling { top_k: 1, ..all() },
            Sampling { top_p: 0.5, ..all() },
            Sampling { min_p: 0.5, ..all() },
            Sampling { top_p: 0.0, ..all() },
            Sampling { temperature: 0.0, ..all() },
            Sampling { temperature: 1e-3, ..all() },
        ] {
            assert_eq!(counts(sampling, &LOGITS, &[]), [0, 4000, 0, 0, 0], "{sampling:?}");
        }
        assert_eq!(counts(Sampling { top_k: 2, ..all() }, &LOGITS, &[])[0], 0);
    }

    /// At a temperature of 3, the best one has less than 0.48 of the probability, at 1 it has 0.66.
    #[test]
    fn temperature_comes_before_the_bounds() {
        let flat = Sampling { top_p: 0.6, temperature: 3.0, ..all() };
        assert!(counts(flat, &LOGITS, &[])[3] > 0);
        assert_eq!(counts(Sampling { temperature: 1.0, ..flat }, &LOGITS, &[])[1], 4000);
        let flat = Sampling { min_p: 0.5, temperature: 3.0, ..all() };
        assert!(counts(flat, &LOGITS, &[])[0] > 0);
        assert_eq!(counts(Sampling { temperature: 1.0, ..flat }, &LOGITS, &[])[1], 4000);
    }

    #[test]
    fn recent_tokens_are_less_probable() {
        let greedy = Sampling { temperature: 0.0, repetition_penalty: 2.0, ..all() };
        assert_eq!(counts(greedy, &LOGITS, &[1, 1, 7])[3], 4000);
        assert_eq!(counts(Sampling { repetition_window: 1, ..greedy }, &LOGITS, &[1, 0])[1], 4000);
    }

    #[test]
    fn a_seed_chooses_the_same_tokens() {
        let chosen = |seed| -> Vec<u32> {
            let mut sampler = Sampler::new(Sampling { seed, ..all() });
            (0..50).map(|_| sampler.choose(&LOGITS, &[])).collect()
        };
        assert_eq!(chosen(1), chosen(1));
        assert_ne!(chosen(1), chosen(2));
        assert_eq!(Sampler::new(all()).choose(&[], &[]), 0);
    }
}
