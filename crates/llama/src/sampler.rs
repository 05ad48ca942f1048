//! The choice of a token from logits.

use backend_api::random::{philox_block, uniforms};

/// What is done to logits before one is chosen, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sampling {
    /// Divides positive and multiplies negative logits of recent tokens; 1 for none (Keskar et al., "CTRL", 2019).
    pub repetition_penalty: f32,
    /// How many tokens are recent.
    pub repetition_window: usize,
    /// So many most probable tokens stay; 0 for all.
    pub top_k: usize,
    /// The most probable tokens stay whose probabilities add up to this (Holtzman et al., 2020); 1 for all.
    pub top_p: f32,
    /// Tokens stay that are at least this fraction as probable as the most probable one; 0 for all.
    pub min_p: f32,
    /// Divides the logits of those that stay; with 0, the most probable token is chosen.
    pub temperature: f32,
    /// Of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            repetition_penalty: 1.0,
            repetition_window: 64,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            temperature: 0.8,
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

    /// Whether always the most probable token is chosen, so that it can be chosen on the device.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature <= 0.0 && self.repetition_penalty == 1.0
    }
}

/// Chooses tokens. The same seed chooses the same ones.
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

    /// A token by its logits, after `recent` tokens. NaN is never chosen; without any logit, 0 is.
    pub fn choose(&mut self, logits: &[f32], recent: &[u32]) -> u32 {
        let Sampling { top_k, top_p, min_p, temperature, .. } = self.sampling;
        let mut left: Vec<(u32, f32)> = (0u32..).zip(logits.iter().copied()).collect();
        self.penalise(&mut left, recent);
        left.retain(|(_, logit)| !logit.is_nan());
        let by_logit = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if temperature <= 0.0 {
            return left.into_iter().min_by(by_logit).map_or(0, |(token, _)| token);
        }
        if top_k > 0 && top_k < left.len() {
            left.select_nth_unstable_by(top_k, by_logit);
            left.truncate(top_k);
        }
        left.sort_unstable_by(by_logit);
        let best = left.first().map_or(0.0, |&(_, logit)| logit);
        let weight = |logit: f32, temperature: f32| f64::from((logit - best) / temperature).exp();

        let total: f64 = left.iter().map(|&(_, logit)| weight(logit, 1.0)).sum();
        let mut sum = 0.0;
        let stays = left.iter().take_while(|&&(_, logit)| {
            let before = sum;
            sum += weight(logit, 1.0) / total;
            before < f64::from(top_p) && weight(logit, 1.0) >= f64::from(min_p)
        });
        // The best one always stays.
        let stays = stays.count().max(1);
        left.truncate(stays);

        let total: f64 = left.iter().map(|&(_, logit)| weight(logit, temperature)).sum();
        let mut target = self.uniform() * total;
        for &(token, logit) in &left {
            target -= weight(logit, temperature);
            if target < 0.0 {
                return token;
            }
        }
        left.first().map_or(0, |&(token, _)| token)
    }

    fn penalise(&self, left: &mut [(u32, f32)], recent: &[u32]) {
        let Sampling { repetition_penalty: penalty, repetition_window, .. } = self.sampling;
        if penalty == 1.0 {
            return;
        }
        let mut recent = recent[recent.len().saturating_sub(repetition_window)..].to_vec();
        recent.sort_unstable();
        recent.dedup();
        for token in recent {
            if let Some((_, logit)) = left.get_mut(token as usize) {
                *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
            }
        }
    }

    /// Uniform in [0, 1).
    fn uniform(&mut self) -> f64 {
        let [number, ..] = uniforms(philox_block(self.sampling.seed, self.drawn));
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
