//! What scripts give and get, as JSON.

use serde::{Deserialize, Serialize};

/// The model that was loaded.
#[derive(Debug, Serialize)]
pub(crate) struct Model {
    /// What the file calls it.
    pub(crate) name: String,
    pub(crate) architecture: &'static str,
    pub(crate) parameters: u64,
    /// Of all tensors in the file.
    pub(crate) bytes: u64,
    /// Tokens that are remembered.
    pub(crate) context: usize,
    /// Whether the file says how a chat is written; else texts are gone on with.
    pub(crate) chats: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Memory {
    pub(crate) device: usize,
    pub(crate) module: u32,
}

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

/// A prompt whose answer begins.
#[derive(Debug, Serialize)]
pub(crate) struct Begun {
    /// Its tokens.
    pub(crate) prompt: usize,
    /// Of these, the ones that the caches have from before.
    pub(crate) known: usize,
    /// Messages that there was no room for.
    pub(crate) forgotten: usize,
}

/// A part of the way.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Next {
    /// Tokens of the prompt in the caches, as long as there are more.
    pub(crate) read: Option<usize>,
    pub(crate) text: String,
    /// How many tokens it is.
    pub(crate) tokens: usize,
    /// `"End"` by the model, `"Count"`, `"Context"`.
    pub(crate) ended: Option<String>,
}
