//! `tokenizer.json`, as far as BERT's tokenizers need it. What this runtime wouldn't do is refused.

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::Error as _;

use super::characters::Normalizer;
use super::word_piece::WordPiece;
use super::{MAX_TOKENS, Tokenizer};

type Result<T> = serde_json::Result<T>;

/// Characters of the longest word that may be cut into pieces; BERT's has 100.
const MAX_WORD: usize = 1000;

#[derive(Deserialize)]
pub(super) struct TokenizerFile {
    added_tokens: Vec<AddedToken>,
    normalizer: BertNormalizer,
    #[serde(rename = "pre_tokenizer")]
    _pre_tokenizer: PreTokenizer,
    post_processor: PostProcessor,
    model: Model,
}

/// A token that is recognised in a text.
#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum BertNormalizer {
    BertNormalizer(Normalizer),
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum PreTokenizer {
    BertPreTokenizer,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum PostProcessor {
    TemplateProcessing { single: Vec<Part>, special_tokens: HashMap<String, SpecialToken> },
}

/// A part of the template of a single text.
#[derive(Deserialize)]
enum Part {
    SpecialToken { id: String },
    Sequence {},
}

#[derive(Deserialize)]
struct SpecialToken {
    ids: Vec<u32>,
}

/// Its `type` beside the fields, and not as a tag: what comes before a tag is kept, here the whole
/// vocabulary.
#[derive(Deserialize)]
struct Model {
    #[serde(rename = "type")]
    _kind: ModelKind,
    unk_token: String,
    continuing_subword_prefix: String,
    max_input_chars_per_word: usize,
    vocab: HashMap<String, u32>,
}

#[derive(Deserialize)]
enum ModelKind {
    WordPiece,
}

impl TokenizerFile {
    pub(super) fn tokenizer(self) -> Result<Tokenizer> {
        let BertNormalizer::BertNormalizer(normalizer) = self.normalizer;
        let special = self.added_tokens.into_iter().map(AddedToken::plain).collect::<Result<_>>()?;
        let frame = self.post_processor.frame()?;
        Ok(Tokenizer { normalizer, word_piece: self.model.word_piece()?, special, frame })
    }
}

impl AddedToken {
    /// The token and its id, if it is recognised wherever it stands.
    fn plain(self) -> Result<(String, u32)> {
        let Self { id, content, single_word, lstrip, rstrip, normalized } = self;
        if content.is_empty() || single_word || lstrip || rstrip || normalized {
            return Err(serde_json::Error::custom(format!("the added token {content:?} isn't plain")));
        }
        Ok((content, id))
    }
}

impl PostProcessor {
    /// The ids before a text and after it.
    fn frame(&self) -> Result<[Vec<u32>; 2]> {
        let Self::TemplateProcessing { single, special_tokens } = self;
        let (mut frame, mut texts) = ([Vec::new(), Vec::new()], 0);
        for part in single {
            match part {
                Part::Sequence {} => texts += 1,
                Part::SpecialToken { id } => match special_tokens.get(id) {
                    Some(SpecialToken { ids }) => frame[texts.min(1)].extend(ids),
                    None => {
                        return Err(serde_json::Error::custom(format!("there is no special token {id:?}")));
                    }
                },
            }
        }
        if texts != 1 {
            return Err(serde_json::Error::custom(format!("the template has {texts} texts instead of one")));
        }
        if frame.concat().len() >= MAX_TOKENS {
            return Err(serde_json::Error::custom("the template leaves no room for a text"));
        }
        Ok(frame)
    }
}

impl Model {
    fn word_piece(self) -> Result<WordPiece> {
        let Some(&unknown) = self.vocab.get(&self.unk_token) else {
            return Err(serde_json::Error::custom(format!("{:?} isn't in the vocabulary", self.unk_token)));
        };
        // The time that a word takes grows with the square of its length.
        if self.max_input_chars_per_word > MAX_WORD {
            let length = self.max_input_chars_per_word;
            return Err(serde_json::Error::custom(format!("words of {length} characters are too long")));
        }
        let prefix = &self.continuing_subword_prefix;
        Ok(WordPiece::new(self.vocab, prefix, unknown, self.max_input_chars_per_word))
    }
}
