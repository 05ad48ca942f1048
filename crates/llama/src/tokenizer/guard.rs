//! Texts that mean nothing but themselves, amid one with control tokens.

use tokenizers::NormalizerWrapper;
use tokenizers::normalizers::{Replace, Sequence};

use super::{Tokenizer, failed};
use crate::Result;

/// A character that breaks up what spells a control token, so that no text can forge one. It is taken out again where these have
/// been found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    mark: char,
}

impl Guard {
    /// A guard for texts, of which none has its character.
    pub(crate) fn new<'t>(texts: impl Iterator<Item = &'t str> + Clone) -> Self {
        // No text should have any of these, by Unicode. Of one with all of them, one is left out.
        let mut marks = '\u{fdd0}'..='\u{fdef}';
        let mark = marks.find(|&mark| !texts.clone().any(|text| text.contains(mark)));
        Self { mark: mark.unwrap_or('\u{fdd0}') }
    }
}

impl Tokenizer {
    /// A text in which nothing spells a control token any more.
    pub(crate) fn guarded(&self, text: &str, guard: Guard) -> String {
        let mut guarded = text.to_owned();
        for token in &self.control {
            let mut letters = token.chars();
            if let Some(first) = letters.next()
                && guarded.contains(token.as_str())
            {
                guarded = guarded.replace(token, &format!("{first}{}{}", guard.mark, letters.as_str()));
            }
        }
        guarded
    }

    /// [`encode`](Self::encode) for a text with [guarded](Self::guarded) parts.
    ///
    /// # Errors
    /// [`Error::Tokenizer`](crate::Error::Tokenizer).
    pub(crate) fn encode_guarded(&self, text: &str, start: bool, guard: Guard) -> Result<Vec<u32>> {
        let unmark = Replace::new(guard.mark.to_string(), "").map_err(failed)?;
        let others = self.inner.get_normalizer().cloned();
        let normalizers = [NormalizerWrapper::from(unmark)].into_iter().chain(others).collect();
        let words =
            self.inner.get_added_vocabulary().extract_and_normalize(Some(&Sequence::new(normalizers)), text);
        let tokens = self.tokens_of(words)?;
        let bos = self.beginning().filter(|bos| start && tokens.first() != Some(bos));
        Ok(bos.into_iter().chain(tokens).collect())
    }
}
