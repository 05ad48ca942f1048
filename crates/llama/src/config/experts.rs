//! Mixtures of experts.

use super::Architecture;
use super::keys::Keys;
use crate::Result;

/// Feed-forward networks of which each token uses some.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExpertConfig {
    /// Networks of a layer.
    pub count: usize,
    /// Of them, those that a token uses.
    pub used: usize,
    /// Numbers inside of one.
    pub intermediate: usize,
    /// Numbers inside of a network that all tokens use; 0 for none.
    pub shared_intermediate: usize,
    /// Whether the weights of the networks that a token uses are made to sum to 1.
    pub normalised: bool,
    /// Factor of the weights.
    pub scale: f64,
}

impl ExpertConfig {
    /// `None` for a model without experts; `dense` is the size inside of a network where the file has no other.
    pub(super) fn new(keys: &Keys<'_>, architecture: Architecture, dense: usize) -> Result<Option<Self>> {
        let is_gpt_oss = architecture == Architecture::GptOss;
        let count = if is_gpt_oss {
            keys.size("expert_count")?
        } else {
            keys.optional_size("expert_count")?.unwrap_or(0)
        };
        if count == 0 {
            return Ok(None);
        }
        let has_experts = is_gpt_oss
            || matches!(
                architecture,
                Architecture::Llama
                    | Architecture::Qwen2Moe
                    | Architecture::Qwen3Moe
                    | Architecture::GraniteMoe
            );
        keys.require("expert_count", has_experts, "0 (no experts)", count)?;
        let used = keys.size("expert_used_count")?;
        keys.require("expert_used_count", used <= count, format!("at most {count}"), used)?;
        let is_qwen2 = architecture == Architecture::Qwen2Moe;
        let intermediate = keys.size_or("expert_feed_forward_length", dense)?;
        let key = "expert_shared_feed_forward_length";
        let shared = match architecture {
            Architecture::Qwen2Moe => keys.size_or(key, dense)?,
            Architecture::GraniteMoe => keys.optional_size(key)?.unwrap_or(0),
            _ => 0,
        };
        // Files say 0 for a factor that they don't have.
        let scale = match keys.number_or("expert_weights_scale", 1.0)? {
            0.0 => 1.0,
            scale => scale,
        };
        let normalised = keys.flag("expert_weights_norm")?.unwrap_or(!is_qwen2);
        keys.require("expert_weights_norm", normalised || !is_gpt_oss, true, normalised)?;
        // By llama.cpp's numbers: not given, of all experts, or of those that are chosen.
        let gating = keys.optional_size("expert_gating_func")?.unwrap_or(0);
        keys.require("expert_gating_func", [0, 1, 3].contains(&gating), "1 or 3 (softmax)", gating)?;
        Ok(Some(Self { count, used, intermediate, shared_intermediate: shared, normalised, scale }))
    }
}
