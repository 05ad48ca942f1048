//! BERT's normalisation of characters, and the words of a text.

use serde::Deserialize;
use unicode_categories::UnicodeCategories as _;
use unicode_normalization::UnicodeNormalization as _;

/// What is done to the characters of a text, as `tokenizer.json` says it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Normalizer {
    clean_text: bool,
    handle_chinese_chars: bool,
    /// As `lowercase` if it isn't said.
    strip_accents: Option<bool>,
    lowercase: bool,
}

impl Normalizer {
    pub(super) fn normalize(&self, text: &str) -> String {
        let mut text = text.to_owned();
        if self.clean_text {
            text = text.chars().filter(|&c| !is_removed(c)).map(blank).collect();
        }
        if self.handle_chinese_chars {
            text = text.chars().flat_map(apart).collect();
        }
        if self.strip_accents.unwrap_or(self.lowercase) {
            text = text.nfd().filter(|c| !c.is_mark_nonspacing()).collect();
        }
        if self.lowercase {
            // Character by character: a sigma at the end of a word is like any other.
            text = text.chars().flat_map(char::to_lowercase).collect();
        }
        text
    }
}

/// The words of a normalised text. A punctuation mark is a word of its own.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split_whitespace().flat_map(|part| part.split_inclusive(is_punctuation));
    let words = parts.flat_map(|part| {
        let word = part.strip_suffix(is_punctuation).unwrap_or(part);
        [word, &part[word.len()..]]
    });
    words.filter(|word| !word.is_empty())
}

fn is_removed(c: char) -> bool {
    matches!(c, '\0' | '\u{fffd}') || (c.is_other() && !matches!(c, '\t' | '\n' | '\r'))
}

fn blank(c: char) -> char {
    if c.is_whitespace() { ' ' } else { c }
}

/// A Chinese character between blanks; any other alone.
fn apart(c: char) -> impl Iterator<Item = char> {
    let blank = is_chinese(c).then_some(' ');
    blank.into_iter().chain([c]).chain(blank)
}

/// Whether a character is of the blocks of CJK ideographs that BERT was trained to see as words.
const fn is_chinese(c: char) -> bool {
    matches!(
        c,
        '\u{4e00}'..='\u{9fff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{20000}'..='\u{2a6df}'
            | '\u{2a700}'..='\u{2b73f}'
            | '\u{2b740}'..='\u{2b81f}'
            | '\u{2b920}'..='\u{2ceaf}'
            | '\u{f900}'..='\u{faff}'
            | '\u{2f800}'..='\u{2fa1f}'
    )
}

fn is_punctuation(c: char) -> bool {
    c.is_ascii_punctuation() || c.is_punctuation()
}
