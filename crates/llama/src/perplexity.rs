//! How well a model predicts a text.

use crate::{Result, Session, Tokenizer};

/// What a model makes of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Tokens that were predicted.
    pub tokens: usize,
    /// Bytes of their text.
    pub bytes: usize,
    /// The sum of the natural logarithms of their probabilities.
    pub log_probability: f64,
}

impl Score {
    /// `exp(−log_probability / tokens)`.
    #[must_use]
    pub fn perplexity(&self) -> f64 {
        (-self.log_probability / self.tokens as f64).exp()
    }

    /// Of the text's bytes, which makes models of other vocabularies comparable.
    #[must_use]
    pub fn bits_per_byte(&self) -> f64 {
        -self.log_probability / self.bytes as f64 / std::f64::consts::LN_2
    }
}

/// Predicts each of `tokens` from those before it, in chunks of the session's context. A chunk begins with the
/// token that begins a text, where the vocabulary has one; of the first chunk without, and of all others, the
/// first half is only read, so that every token that counts has half a context before it, as llama.cpp's
/// perplexity has it. A text that isn't longer than the context counts as a whole.
///
/// Sequence 0 is overwritten.
///
/// # Errors
/// As [`Session::step`].
pub fn perplexity(session: &mut Session, tokenizer: &Tokenizer, tokens: &[u32]) -> Result<Score> {
    let bos = tokenizer.bos();
    let room = session.context().saturating_sub(bos.iter().len()).max(1);
    let is_short = tokens.len() <= room;
    let mut score = Score::default();
    for chunk in tokens.chunks(room) {
        let unread = if is_short { 0 } else { room / 2 };
        session.truncate(0, 0);
        let with_bos: Vec<u32> = bos.into_iter().chain(chunk.iter().copied()).collect();
        let log_probabilities = session.log_probabilities(0, &with_bos)?;
        // Without a token before it, the first one isn't predicted.
        let predicted = &with_bos[with_bos.len() - log_probabilities.len()..];
        for (&token, &log_probability) in predicted.iter().zip(&log_probabilities).skip(unread) {
            score.tokens += 1;
            score.bytes += tokenizer.bytes(token).len();
            score.log_probability += f64::from(log_probability);
        }
    }
    Ok(score)
}
