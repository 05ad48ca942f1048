//! From text to tokens and back, by the vocabulary in the file.
//!
//! The merging is that of the crate `tokenizers`. Two kinds of vocabulary are known: `gpt2`, byte-level BPE with
//! merges, whose texts are cut into words first, and `llama`, SentencePiece's BPE, whose merges follow from
//! scores, with bytes for what the vocabulary lacks.

mod guard;
mod pieces;
mod words;

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::{Prepend, Replace, Sequence};
use tokenizers::{
    AddedToken, AddedVocabulary, Model as _, NormalizerWrapper, OffsetType, PreTokenizedString,
    PreTokenizer as _,
};

use crate::config::Architecture;
use crate::gguf::{Metadata, Value};
use crate::{Error, Result};
pub(crate) use guard::Guard;
use pieces::Spelling;

/// The key of the vocabulary.
const TOKENS: &str = "tokenizer.ggml.tokens";

/// SentencePiece's stand-in for a space.
const SPACE: &str = "▁";

/// What ends a text, besides the tokens that the metadata names: as llama.cpp has it, because files disagree.
const ENDS: [&str; 10] = [
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "</s>",
];

/// How a token is meant, by GGUF's numbers.
const CONTROL: u64 = 3;
const USER_DEFINED: u64 = 4;
const UNUSED: u64 = 5;
const BYTE: u64 = 6;

/// The longest token of a SentencePiece vocabulary, in bytes: several times the longest of any model.
const MAX_PIECE: usize = 1024;

/// The sum of the squares of such tokens' lengths, which bounds the time and the memory for their merges: several
/// times that of Gemma's 262,144 tokens.
const MAX_SQUARES: usize = 1 << 29;

/// A vocabulary and how texts are cut into its tokens.
#[derive(Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// Tokens that texts are cut at before all else, without control tokens.
    plain: AddedVocabulary,
    /// How control tokens are spelled.
    control: Vec<String>,
    tokens: Vec<String>,
    /// The bytes of each token's text; none of control tokens.
    bytes: Vec<Vec<u8>>,
    bos: Option<u32>,
    ends: Vec<u32>,
    adds_bos: bool,
}

impl Tokenizer {
    /// The tokenizer of a file.
    ///
    /// # Errors
    /// [`Error::MissingKey`], [`Error::Value`] for a kind of vocabulary or of words that isn't known, or for a
    /// SentencePiece vocabulary with a token of more than 1024 bytes or very many long ones, [`Error::Tokenizer`].
    pub fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let vocabulary = Vocabulary::new(metadata)?;
        let model = metadata.get("tokenizer.ggml.model").and_then(Value::text).unwrap_or_default();
        let (mut inner, spelling, adds_bos) = match model {
            "gpt2" => {
                let (inner, adds_bos) = byte_level(metadata, &vocabulary)?;
                (inner, Spelling::bytes(), adds_bos)
            }
            "llama" => (sentence_piece(metadata, &vocabulary)?, Spelling::Spaces, true),
            other => return Err(Error::value("tokenizer.ggml.model", "gpt2 or llama", other)),
        };
        let added = vocabulary.numbered().filter(|(_, kind, _)| matches!(*kind, CONTROL | USER_DEFINED));
        let is_phi3 = model == "llama" && Architecture::of(metadata) == Some(Architecture::Phi3);
        let added = added.map(|(token, kind, _)| {
            // Phi 3's tokenizer drops the white space behind these, which files don't say.
            let strips = is_phi3 && kind == CONTROL && !["<unk>", "<s>", "<|endoftext|>"].contains(&token);
            AddedToken::from(token, kind == CONTROL).normalized(false).rstrip(strips)
        });
        let added: Vec<AddedToken> = added.collect();
        inner.add_special_tokens(added).map_err(failed)?;
        let mut plain = inner.get_added_vocabulary().clone();
        plain.set_encode_special_tokens(true);

        let id = |key: &str| -> Result<Option<u32>> {
            let id = typed(metadata, key, "a number", Value::unsigned)?.and_then(|id| u32::try_from(id).ok());
            Ok(id.filter(|&id| (id as usize) < vocabulary.tokens.len()))
        };
        let ends = [id("tokenizer.ggml.eos_token_id")?, id("tokenizer.ggml.eot_token_id")?];
        let mut ends: Vec<u32> = ends.into_iter().flatten().collect();
        let named = vocabulary.numbered().filter(|(token, kind, _)| *kind == CONTROL && ENDS.contains(token));
        let named: Vec<_> = named.collect();
        // In gpt-oss's format, that ends a message, after which the next one may come.
        let has = |end| named.iter().any(|&(token, ..)| token == end);
        let goes_on = |token| token == "<|end|>" && has("<|return|>") && has("<|call|>");
        ends.extend(named.iter().filter(|&&(token, ..)| !goes_on(token)).map(|&(.., id)| id));
        let adds_bos = typed(metadata, "tokenizer.ggml.add_bos_token", "true or false", Value::boolean)?
            .unwrap_or(adds_bos);
        let control = vocabulary.numbered().filter(|&(_, kind, _)| kind == CONTROL);
        let control = control.map(|(token, ..)| token.to_owned()).collect();
        let bytes = vocabulary.numbered().map(|(token, kind, _)| spelling.bytes_of(token, kind)).collect();
        Ok(Self {
            inner,
            plain,
            control,
            bytes,
            bos: id("tokenizer.ggml.bos_token_id")?,
            ends,
            adds_bos,
            tokens: vocabulary.tokens,
        })
    }

    /// The tokens of a text. Control tokens that the text spells are taken for what they mean. With `start`, the
    /// token that begins a text comes first, where the vocabulary has one and the model expects it.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn encode(&self, text: &str, start: bool) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, false).map_err(failed)?;
        let bos = self.beginning().filter(|&bos| start && encoding.get_ids().first() != Some(&bos));
        Ok(bos.into_iter().chain(encoding.get_ids().iter().copied()).collect())
    }

    /// [`encode`](Self::encode) for texts that mean nothing but themselves, such as those that a model is measured with:
    /// what spells a control token is a text like any other.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn encode_plain(&self, text: &str, start: bool) -> Result<Vec<u32>> {
        let words = self.plain.extract_and_normalize(self.inner.get_normalizer(), text);
        let bos = self.beginning().filter(|_| start);
        Ok(bos.into_iter().chain(self.tokens_of(words)?).collect())
    }

    /// The tokens of a text in which added tokens have been found.
    fn tokens_of(&self, mut words: PreTokenizedString) -> Result<Vec<u32>> {
        if let Some(cut) = self.inner.get_pre_tokenizer() {
            cut.pre_tokenize(&mut words).map_err(failed)?;
        }
        let model = self.inner.get_model();
        words.tokenize(|word| model.tokenize(word.get())).map_err(failed)?;
        let encoding = words.into_encoding(None, 0, OffsetType::None).map_err(failed)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The bytes of a token's text, which may be a part of a character; none of a control token.
    #[must_use]
    pub fn bytes(&self, token: u32) -> &[u8] {
        self.bytes.get(token as usize).map_or(&[], Vec::as_slice)
    }

    /// The text of tokens, with U+FFFD in place of what isn't UTF-8.
    #[must_use]
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|&token| self.bytes(token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Whether a token ends a text.
    #[must_use]
    pub fn is_end(&self, token: u32) -> bool {
        self.ends.contains(&token)
    }

    /// The token that begins a text.
    #[must_use]
    pub const fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The token that begins a text, if the model expects it there.
    pub(crate) fn beginning(&self) -> Option<u32> {
        self.bos.filter(|_| self.adds_bos)
    }

    /// How the vocabulary spells a token.
    #[must_use]
    pub fn spelling(&self, token: u32) -> Option<&str> {
        self.tokens.get(token as usize).map(String::as_str)
    }

    /// The spelling of the first token that ends a text, for chat templates.
    pub(crate) fn end_spelling(&self) -> Option<&str> {
        self.ends.first().and_then(|&end| self.spelling(end))
    }

    /// Tokens of the vocabulary.
    #[must_use]
    pub const fn vocabulary(&self) -> usize {
        self.tokens.len()
    }
}

/// Tokens, how they are meant, and what a merge into each is worth.
struct Vocabulary {
    tokens: Vec<String>,
    kinds: Vec<u64>,
}

impl Vocabulary {
    fn new(metadata: &Metadata) -> Result<Self> {
        let key = TOKENS;
        let values = metadata.get(key).and_then(Value::elements);
        let values = values.ok_or_else(|| Error::MissingKey { key: key.to_owned() })?;
        let tokens: Option<Vec<String>> =
            values.iter().map(|value| value.text().map(str::to_owned)).collect();
        let tokens = tokens.ok_or_else(|| Error::value(key, "texts", "something else"))?;
        if u32::try_from(tokens.len()).is_err() {
            return Err(Error::value(key, "at most 2³² tokens", tokens.len()));
        }
        let kinds = metadata.get("tokenizer.ggml.token_type").and_then(Value::elements).unwrap_or_default();
        let mut kinds: Vec<u64> = kinds.iter().map(|kind| kind.unsigned().unwrap_or(1)).collect();
        kinds.resize(tokens.len(), 1);
        // Some files have ends of turns as texts of a user's own. "</s>" may be one: an end of HTML's struck-out text.
        for (token, kind) in tokens.iter().zip(&mut kinds) {
            if *kind == USER_DEFINED && token != "</s>" && ENDS.contains(&token.as_str()) {
                *kind = CONTROL;
            }
        }
        Ok(Self { tokens, kinds })
    }

    /// Spelling, kind and id of each token.
    fn numbered(&self) -> impl Iterator<Item = (&str, u64, u32)> {
        let tokens = self.tokens.iter().zip(&self.kinds).enumerate();
        tokens.map(|(id, (token, &kind))| (token.as_str(), kind, id as u32))
    }

    fn by_spelling(&self) -> Vocab {
        // Of tokens spelled alike, the first one counts.
        let mut ids = Vocab::default();
        for (token, _, id) in self.numbered() {
            ids.entry(token.to_owned()).or_insert(id);
        }
        ids
    }
}

fn byte_level(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<(tokenizers::Tokenizer, bool)> {
    let ids = vocabulary.by_spelling();
    let merges = metadata.get("tokenizer.ggml.merges").and_then(Value::elements).unwrap_or_default();
    let merges: Merges = merges
        .iter()
        .filter_map(|merge| merge.text()?.split_once(' '))
        // A merge into nothing never happens.
        .filter(|&(a, b)| [a, b, &format!("{a}{b}")].iter().all(|&part| ids.contains_key(part)))
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .collect();
    let words = words::Words::of(metadata)?;
    let bpe = BPE::builder().vocab_and_merges(ids, merges).ignore_merges(words.ignores_merges());
    let mut tokenizer = tokenizers::Tokenizer::new(bpe.build().map_err(failed)?);
    tokenizer.with_pre_tokenizer(Some(words.pre_tokenizer()?));
    Ok((tokenizer, words.adds_bos()))
}

fn sentence_piece(metadata: &Metadata, vocabulary: &Vocabulary) -> Result<tokenizers::Tokenizer> {
    let ids = vocabulary.by_spelling();
    let scores = metadata.get("tokenizer.ggml.scores").and_then(Value::elements).unwrap_or_default();
    let score = |id: u32| scores.get(id as usize).and_then(Value::float).unwrap_or(0.0);
    let mut merges: Vec<(f64, &str, &str)> = Vec::new();
    let pieces = || vocabulary.numbered().filter(|(_, kind, _)| !matches!(*kind, CONTROL | UNUSED | BYTE));
    let mut squares = 0;
    for (token, _, id) in pieces() {
        squares += token.len().min(MAX_PIECE).pow(2);
        if token.len() > MAX_PIECE || squares > MAX_SQUARES {
            let expected = format!("tokens of up to {MAX_PIECE} bytes, few of them long");
            return Err(Error::value(TOKENS, expected, format!("token {id} of {} bytes", token.len())));
        }
    }
    for (token, _, id) in pieces() {
        let splits = token.char_indices().skip(1).map(|(at, _)| token.split_at(at));
        let mut known: Vec<_> =
            splits.filter_map(|(a, b)| Some((*ids.get(a)?, *ids.get(b)?, a, b))).collect();
        known.sort_unstable();
        merges.extend(known.into_iter().map(|(.., a, b)| (score(id), a, b)));
    }
    // The best first; of equal ones, in the order of the crate's own converter.
    let lengths = |a: &str, b: &str| (a.chars().count(), b.chars().count());
    merges.sort_by(|x, y| y.0.total_cmp(&x.0).then_with(|| lengths(y.1, y.2).cmp(&lengths(x.1, x.2))));
    let merges: Merges = merges.into_iter().map(|(_, a, b)| (a.to_owned(), b.to_owned())).collect();

    let unknown = metadata.get("tokenizer.ggml.unknown_token_id").and_then(Value::unsigned).unwrap_or(0);
    let unknown = usize::try_from(unknown).ok().and_then(|id| vocabulary.tokens.get(id));
    let mut bpe = BPE::builder().vocab_and_merges(ids, merges).byte_fallback(true).fuse_unk(true);
    if let Some(unknown) = unknown {
        bpe = bpe.unk_token(unknown.clone());
    }
    let mut tokenizer = tokenizers::Tokenizer::new(bpe.build().map_err(failed)?);
    let prefix = typed(metadata, "tokenizer.ggml.add_space_prefix", "true or false", Value::boolean)?;
    let mut normalizers: Vec<NormalizerWrapper> = Vec::new();
    if prefix.unwrap_or(true) {
        normalizers.push(Prepend::new(SPACE.to_owned()).into());
    }
    normalizers.push(Replace::new(" ", SPACE).map_err(failed)?.into());
    tokenizer.with_normalizer(Some(Sequence::new(normalizers))).map_err(failed)?;
    Ok(tokenizer)
}

/// The value of a key that may be missing. One of another type isn't.
fn typed<T>(
    metadata: &Metadata,
    key: &str,
    expected: &str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Option<T>> {
    let Some(value) = metadata.get(key) else { return Ok(None) };
    read(value).map(Some).ok_or_else(|| Error::value(key, expected, "something else"))
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Tokenizer(error.to_string())
}
