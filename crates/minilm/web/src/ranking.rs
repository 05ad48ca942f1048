//! What a page shows.

use serde::Serialize;

/// The answer to a query.
#[derive(Debug, Serialize)]
pub(crate) struct Ranking {
    /// Best first.
    pub(crate) results: Vec<Hit>,
    pub(crate) passages: usize,
    /// Tokens of all passages.
    pub(crate) tokens: usize,
    pub(crate) query_milliseconds: f64,
    pub(crate) embed_milliseconds: f64,
}

/// A passage that was found.
#[derive(Debug, Serialize)]
pub(crate) struct Hit {
    /// Cosine similarity to the query.
    pub(crate) score: f32,
    pub(crate) line: usize,
    pub(crate) text: String,
}
