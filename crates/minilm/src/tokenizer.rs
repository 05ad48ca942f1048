//! From text to token ids.

use tokenizers::TruncationParams;

use crate::{Error, Result};

/// Tokens of a text that are read, the two that frame it included; the rest is cut off. The model was trained
/// and is published with this limit (`max_seq_length` in its `sentence_bert_config.json`).
pub const MAX_TOKENS: usize = 256;

/// The model's WordPiece tokenizer.
#[derive(Clone, Debug)]
pub struct Tokenizer(tokenizers::Tokenizer);

impl Tokenizer {
    /// Reads the contents of `tokenizer.json`. Its own truncation and padding are replaced: texts are cut at
    /// [`MAX_TOKENS`], and padding is left to [`Batch`](crate::Batch).
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn from_bytes(json: &[u8]) -> Result<Self> {
        let mut tokenizer = tokenizers::Tokenizer::from_bytes(json).map_err(Error::Tokenizer)?;
        let truncation = TruncationParams { max_length: MAX_TOKENS, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(truncation)).map_err(Error::Tokenizer)?.with_padding(None);
        Ok(Self(tokenizer))
    }

    /// The token ids of each text, framed by `[CLS]` and `[SEP]`.
    ///
    /// # Errors
    /// [`Error::Tokenizer`].
    pub fn encode<S: AsRef<str>>(&self, texts: &[S]) -> Result<Vec<Vec<u32>>> {
        let texts = texts.iter().map(AsRef::as_ref).collect::<Vec<&str>>();
        let encodings = self.0.encode_batch_fast(texts, true).map_err(Error::Tokenizer)?;
        Ok(encodings.iter().map(|encoding| encoding.get_ids().to_vec()).collect())
    }
}
