//! From text to token ids: BERT's normalisation of characters, words, and pieces of words.
//!
//! The ids are those of the crate `tokenizers`, which reads every tokenizer there is and takes longer to
//! compile than the rest of this runtime; a test compares the two character by character.

mod characters;
mod file;
mod word_piece;

use std::cmp::Reverse;

use self::characters::{Normalizer, words};
use self::file::TokenizerFile;
use self::word_piece::WordPiece;
use crate::{Error, Result};

/// Tokens of a text that are read, the two that frame it included; the rest is cut off. The model was trained
/// and is published with this limit (`max_seq_length` in its `sentence_bert_config.json`).
pub const MAX_TOKENS: usize = 256;

/// The model's WordPiece tokenizer.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    normalizer: Normalizer,
    word_piece: WordPiece,
    /// Tokens that are recognised in a text as they are, such as `[SEP]`.
    special: Vec<(String, u32)>,
    /// Token ids before a text and after it.
    frame: [Vec<u32>; 2],
}

impl Tokenizer {
    /// Reads the contents of `tokenizer.json`. Its own truncation and padding are replaced: texts are cut at
    /// [`MAX_TOKENS`], and padding is left to [`Batch`](crate::Batch).
    ///
    /// # Errors
    /// [`Error::Tokenizer`], also if it is of another kind than BERT's.
    pub fn from_bytes(json: &[u8]) -> Result<Self> {
        let file: TokenizerFile = serde_json::from_slice(json).map_err(Error::Tokenizer)?;
        file.tokenizer().map_err(Error::Tokenizer)
    }

    /// The token ids of each text, framed by `[CLS]` and `[SEP]`.
    #[must_use]
    pub fn encode<S: AsRef<str>>(&self, texts: &[S]) -> Vec<Vec<u32>> {
        texts.iter().map(|text| self.encode_one(text.as_ref())).collect()
    }

    fn encode_one(&self, text: &str) -> Vec<u32> {
        let [before, after] = &self.frame;
        let end = MAX_TOKENS.saturating_sub(after.len());
        let (mut ids, mut rest) = (before.clone(), text);
        while let Some((start, token, id)) = self.first_special(rest)
            && ids.len() < end
        {
            self.encode_plain(&rest[..start], end, &mut ids);
            ids.push(id);
            rest = &rest[start + token.len()..];
        }
        self.encode_plain(rest, end, &mut ids);
        ids.truncate(end);
        ids.extend(after);
        ids
    }

    /// Appends the ids of a text without special tokens until there are at least `end`.
    fn encode_plain(&self, text: &str, end: usize, ids: &mut Vec<u32>) {
        if ids.len() >= end {
            return;
        }
        for word in words(&self.normalizer.normalize(text)) {
            self.word_piece.encode(word, ids);
            if ids.len() >= end {
                return;
            }
        }
    }

    /// The first special token of a text, of several there the longest: where it starts, what it is, its id.
    fn first_special(&self, text: &str) -> Option<(usize, &str, u32)> {
        let found = self.special.iter().filter_map(|(token, id)| Some((text.find(token)?, &**token, *id)));
        found.min_by_key(|&(start, token, _)| (start, Reverse(token.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = include_str!("../tests/fixtures/tokenizer.json");

    fn encode(text: &str) -> Vec<u32> {
        Tokenizer::from_bytes(FILE.as_bytes()).unwrap().encode(&[text]).remove(0)
    }

    #[test]
    fn words_are_cut_into_the_longest_pieces_known() {
        assert_eq!(encode("unaffaa"), [1, 11, 6, 6, 2]);
        assert_eq!(encode("unable un"), [1, 3, 5, 3, 2]);
        assert_eq!(encode("unx un"), [1, 0, 3, 2], "one unknown piece makes the word unknown");
        assert_eq!(encode("unaaaaaa unaaaaaaa"), [1, 3, 6, 6, 6, 6, 6, 6, 0, 2], "a word may be too long");
    }

    #[test]
    fn characters_are_normalised_and_marks_stand_alone() {
        assert_eq!(encode(" CAFÉ\u{200b},un\u{0},,\tcafe\u{301}"), [1, 8, 7, 3, 7, 7, 8, 2]);
        assert_eq!(encode("un中un"), [1, 3, 9, 3, 2]);
        assert_eq!(encode(""), [1, 2]);
    }

    #[test]
    fn special_tokens_are_recognised_in_a_text() {
        assert_eq!(encode("un[SEP]un[sep"), [1, 3, 2, 3, 10, 0, 2]);
    }

    #[test]
    fn long_texts_are_cut_off() {
        for text in ["un ".repeat(300), "[SEP]".repeat(300), "unaffaa ".repeat(100)] {
            let ids = encode(&text);
            assert_eq!((ids.len(), ids[0], ids[MAX_TOKENS - 1]), (MAX_TOKENS, 1, 2));
        }
    }

    #[test]
    fn tokenizers_of_other_kinds_are_refused() {
        let changes = [
            ("BertNormalizer", "Lowercase"),
            ("BertPreTokenizer", "Whitespace"),
            ("TemplateProcessing", "RobertaProcessing"),
            ("\"WordPiece\"", "\"BPE\""),
            ("\"unk_token\": \"[UNK]\"", "\"unk_token\": \"<unk>\""),
            ("\"lstrip\": false", "\"lstrip\": true"),
            ("\"[SEP]\": {\"ids\": [2]}", "\"[END]\": {\"ids\": [2]}"),
        ];
        for (from, to) in changes {
            let refused = Tokenizer::from_bytes(FILE.replace(from, to).as_bytes());
            assert!(matches!(refused, Err(Error::Tokenizer(_))), "{to}");
        }
    }
}
