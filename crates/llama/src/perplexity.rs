//! How well a model predicts a text.

use crate::{Error, Result, Session, Tokenizer};

/// What a model makes of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// Tokens that were predicted.
    pub tokens: usize,
    /// Bytes of their text.
    pub bytes: usize,
    /// The sum of the natural logarithms of their probabilities.
    pub log_probability: f64,
    /// Whether these are all tokens but the first, as of a text that the context holds, rather than the second half of each
    /// chunk. The two don't compare.
    pub is_whole: bool,
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

/// Predicts tokens of a text from those before them, as llama.cpp's perplexity does, so that numbers of one context
/// compare. `tokens` are those of [`Tokenizer::encode_plain`] with the token that begins a text, which only some models
/// expect (`tokenizer.ggml.add_bos_token`).
///
/// The text is cut into chunks of the session's context, and what is left at its end isn't counted. In models that
/// expect it, the token that begins a text takes the place of each chunk's first one. The first half of a chunk is
/// only read, so that every token that counts has half a context before it. Of a text that isn't longer than the
/// context, which llama.cpp refuses, all tokens but the first count.
///
/// Sequence 0 is overwritten.
///
/// # Errors
/// As [`Session::log_probabilities`], and [`Error::Argument`] for a context of fewer than three tokens, of which none
/// would count, and a longer text.
pub fn perplexity(session: &mut Session, tokenizer: &Tokenizer, tokens: &[u32]) -> Result<Score> {
    let context = session.context();
    if tokens.len() <= context {
        return Ok(Score { is_whole: true, ..score(session, tokenizer, tokens, 0)? });
    }
    if context < 3 {
        let expected = "3 or more for a longer text".to_owned();
        return Err(Error::Argument { what: "the context", expected, got: context });
    }
    let mut total = Score::default();
    for chunk in tokens.chunks_exact(context) {
        let mut chunk = chunk.to_vec();
        if let (Some(first), Some(begin)) = (chunk.first_mut(), tokenizer.beginning()) {
            *first = begin;
        }
        let Score { tokens, bytes, log_probability, .. } = score(session, tokenizer, &chunk, context / 2)?;
        total.tokens += tokens;
        total.bytes += bytes;
        total.log_probability += log_probability;
    }
    Ok(total)
}

/// Of the tokens behind the one at `read`.
fn score(session: &mut Session, tokenizer: &Tokenizer, tokens: &[u32], read: usize) -> Result<Score> {
    let mut score = Score::default();
    if tokens.is_empty() {
        return Ok(score);
    }
    session.truncate(0, 0);
    let log_probabilities = session.log_probabilities(0, tokens)?;
    for (&token, &log_probability) in tokens.iter().skip(1).zip(&log_probabilities).skip(read) {
        score.tokens += 1;
        score.bytes += tokenizer.bytes(token).len();
        score.log_probability += f64::from(log_probability);
    }
    Ok(score)
}
