//! Constant factors in a model's formulas.

use super::Architecture;
use super::keys::Keys;
use crate::Result;

/// A model's factors, each above 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scales {
    /// Factor of the embeddings.
    pub(super) embedding: f64,
    /// Factor of the scores of attention.
    pub(super) attention: f64,
    /// Factor of what a block adds to the residual stream.
    pub(super) residual: f64,
    /// Divides the logits.
    pub(super) logit_divisor: f64,
}

impl Scales {
    /// Granite's, from the file, which has to say by what logits are divided, and Cohere's, which has to say by what they are
    /// multiplied. Other factors are these, and a file that says otherwise is refused.
    pub(super) fn new(keys: &Keys<'_>, architecture: Architecture, usual: Self) -> Result<Self> {
        let is_granite = architecture.is_granite();
        let is_cohere = architecture.is_cohere();
        let scale = |key, usual| {
            let scale = keys.number_or(key, usual)?;
            // Products with it and with its inverse are of f32.
            let is_usable = scale > 0.0 && [scale, scale.recip()].iter().all(|&x| (x as f32).is_normal());
            keys.require(key, is_usable, "a factor above 0", scale)?;
            let is_own = is_granite || is_cohere && key == "logit_scale";
            keys.require(key, is_own || scale as f32 == usual as f32, usual, scale)?;
            Ok::<f64, crate::Error>(scale)
        };
        if is_granite || is_cohere {
            keys.number("logit_scale")?;
        }
        let logits = scale("logit_scale", usual.logit_divisor)?;
        Ok(Self {
            embedding: scale("embedding_scale", usual.embedding)?,
            attention: scale("attention.scale", usual.attention)?,
            residual: scale("residual_scale", usual.residual)?,
            logit_divisor: if is_cohere { logits.recip() } else { logits },
        })
    }
}
