//! Scores that grow with the position of their query.

use super::Architecture;
use super::keys::Keys;
use crate::Result;

/// Attention's temperature beyond a length of texts (Llama 4): queries at position p are multiplied by
/// `1 + scale · ln(1 + ⌊p / length⌋)`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct AttentionTemperature {
    /// How fast queries grow.
    pub scale: f64,
    /// The positions before which they don't.
    pub length: usize,
}

impl AttentionTemperature {
    /// `None` where a file has none; architectures that can't have one are refused with it.
    pub(super) fn new(keys: &Keys<'_>, architecture: Architecture, context: usize) -> Result<Option<Self>> {
        let key = "attention.temperature_scale";
        let scale = keys.number_or(key, 0.0)?;
        let is_known = architecture == Architecture::Mistral3;
        keys.require(key, scale == 0.0 || is_known, 0, scale)?;
        keys.require(key, scale >= 0.0 && (scale as f32).is_finite(), "0 or more", scale)?;
        let length =
            if is_known { keys.size_or("rope.scaling.original_context_length", context)? } else { 0 };
        // Files that name the length have that of the rotations, which llama.cpp takes for both.
        let key = "attention.temperature_length";
        let named = keys.optional_size(key)?.unwrap_or(0);
        keys.require(key, named == 0 || named == length, length, named)?;
        Ok((scale > 0.0).then_some(Self { scale, length }))
    }

    /// Factors of the queries at so many positions; `None` if all are 1.
    #[must_use]
    pub fn factors(&self, positions: usize) -> Option<Vec<f32>> {
        let factor = |position: usize| 1.0 + self.scale * (1.0 + (position / self.length) as f64).ln();
        (positions > self.length).then(|| (0..positions).map(|position| factor(position) as f32).collect())
    }
}
