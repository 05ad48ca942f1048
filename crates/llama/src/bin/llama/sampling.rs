//! How tokens are chosen, as the command line says it.

use llama::Sampling;

use crate::numbers::{self, Seed};

#[derive(Debug, clap::Args)]
pub(crate) struct SamplingArgs {
    /// The most tokens of a text or an answer; -1 for all that the context has room for
    #[arg(
        long,
        short = 'n',
        aliases = ["n-predict", "predict"],
        default_value_t = 256,
        value_parser = numbers::count,
        allow_negative_numbers = true
    )]
    pub(crate) tokens: usize,

    /// Seed of the random numbers; -1 for one at random, which is told
    #[arg(long, short_alias = 's', default_value = "0", value_parser = numbers::seed, allow_negative_numbers = true)]
    pub(crate) seed: Seed,

    /// Temperature: 0 always takes the most probable token, more is more random
    #[arg(
        long,
        alias = "temperature",
        default_value_t = 0.8,
        value_parser = numbers::not_negative,
        allow_negative_numbers = true
    )]
    pub(crate) temp: f32,

    /// Choose among so many tokens; 0 for all
    #[arg(long, default_value_t = 40, value_parser = numbers::whole, allow_negative_numbers = true)]
    pub(crate) top_k: usize,

    /// Choose among the most probable tokens whose probabilities add up to this (0 to 1)
    #[arg(long, default_value_t = 0.95, value_parser = numbers::fraction, allow_negative_numbers = true)]
    pub(crate) top_p: f32,

    /// Choose among tokens at least this fraction as probable as the best one (0 to 1)
    #[arg(long, default_value_t = 0.05, value_parser = numbers::fraction, allow_negative_numbers = true)]
    pub(crate) min_p: f32,

    /// Divides the logits of a text's last 64 tokens (above 0; 1 for none)
    #[arg(long, default_value_t = 1.0, value_parser = numbers::above_zero, allow_negative_numbers = true)]
    pub(crate) repeat_penalty: f32,
}

impl SamplingArgs {
    pub(crate) fn sampling(&self) -> Sampling {
        let mut sampling = Sampling::default();
        sampling.seed = self.seed.number;
        sampling.temperature = self.temp;
        sampling.top_k = self.top_k;
        sampling.top_p = self.top_p;
        sampling.min_p = self.min_p;
        sampling.repetition_penalty = self.repeat_penalty;
        sampling
    }
}
