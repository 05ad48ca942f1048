//! Words as pieces of a vocabulary.

use std::collections::HashMap;

/// A vocabulary of pieces; a word is cut greedily into the longest.
#[derive(Clone, Debug)]
pub(super) struct WordPiece {
    /// Pieces that a word may start with.
    starting: HashMap<String, u32>,
    /// Pieces that it may go on with, without the prefix that marks them in the vocabulary.
    continuing: HashMap<String, u32>,
    /// What stands for a word that can't be cut.
    unknown: u32,
    /// Characters of a word beyond which it isn't tried.
    max_chars: usize,
}

impl WordPiece {
    pub(super) fn new(
        vocabulary: HashMap<String, u32>,
        prefix: &str,
        unknown: u32,
        max_chars: usize,
    ) -> Self {
        let continuing = vocabulary
            .iter()
            .filter_map(|(piece, &id)| Some((piece.strip_prefix(prefix)?.to_owned(), id)))
            .collect();
        Self { starting: vocabulary, continuing, unknown, max_chars }
    }

    /// Appends the ids of a word's pieces.
    pub(super) fn encode(&self, word: &str, ids: &mut Vec<u32>) {
        let before = ids.len();
        if word.chars().count() > self.max_chars || self.cut(word, ids).is_none() {
            ids.truncate(before);
            ids.push(self.unknown);
        }
    }

    fn cut(&self, word: &str, ids: &mut Vec<u32>) -> Option<()> {
        let (mut rest, mut pieces) = (word, &self.starting);
        while !rest.is_empty() {
            let (end, id) = longest(pieces, rest)?;
            ids.push(id);
            (rest, pieces) = (&rest[end..], &self.continuing);
        }
        Some(())
    }
}

/// The longest piece that a text starts with: its end and its id.
fn longest(pieces: &HashMap<String, u32>, text: &str) -> Option<(usize, u32)> {
    let ends = text.char_indices().rev().map(|(start, c)| start + c.len_utf8());
    ends.into_iter().find_map(|end| Some((end, *pieces.get(&text[..end])?)))
}
