//! What scripts ask for, as JSON.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) content: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Options {
    /// 0 for always the most probable token.
    pub(crate) temperature: f32,
    pub(crate) seed: u64,
    /// The most tokens of the answer.
    pub(crate) tokens: usize,
}
