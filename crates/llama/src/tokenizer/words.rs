//! How texts are cut into words before pairs are merged, which files name but don't state.

use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior};

use super::failed;
use crate::gguf::Metadata;
use crate::{Error, Result};

const KEY: &str = "tokenizer.ggml.pre";

const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const SEED: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";

const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// What Hunyuan's dense models cut texts at, one after the other: numbers, words of Chinese and Japanese, and the rest.
const HUNYUAN: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// The kinds of words, by llama.cpp's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Words {
    Gpt2,
    /// GPT-2's, with digits one by one.
    SmolLm,
    Llama3,
    /// Llama 3's, of vocabularies with merges for all of their tokens.
    Dbrx,
    Qwen2,
    /// Qwen 2's, with ends of lines apart from what is before them.
    Seed,
    Tekken,
    Gpt4o,
    Hunyuan,
}

impl Words {
    pub(super) fn of(metadata: &Metadata) -> Result<Self> {
        let value = metadata.get(KEY).ok_or_else(|| Error::MissingKey { key: KEY.to_owned() })?;
        match value.text() {
            Some("gpt-2" | "gpt2" | "exaone4") => Ok(Self::Gpt2),
            Some("smollm" | "refact" | "command-r") => Ok(Self::SmolLm),
            Some("llama-bpe" | "llama3" | "llama-v3") => Ok(Self::Llama3),
            Some("dbrx" | "smaug-bpe" | "glm4" | "chatglm-bpe") => Ok(Self::Dbrx),
            Some("qwen2" | "deepseek-r1-qwen") => Ok(Self::Qwen2),
            Some("seed-coder") => Ok(Self::Seed),
            Some("tekken") => Ok(Self::Tekken),
            Some("gpt-4o") => Ok(Self::Gpt4o),
            Some("hunyuan-dense") => Ok(Self::Hunyuan),
            // Among them "default", which stands for words that the file's converter didn't know.
            other => {
                let got = other.map_or_else(|| format!("{value:?}"), str::to_owned);
                Err(Error::value(
                    KEY,
                    "gpt-2, exaone4, smollm, refact, command-r, llama-bpe, dbrx, smaug-bpe, glm4, chatglm-bpe, qwen2, seed-coder, \
                     tekken, gpt-4o or hunyuan-dense",
                    got,
                ))
            }
        }
    }

    /// Whether a word that is a token is taken as it is, whatever merges would make of it.
    pub(super) fn ignores_merges(self) -> bool {
        matches!(self, Self::Llama3 | Self::Tekken)
    }

    /// Whether texts begin with a token of their own, unless the file says otherwise.
    pub(super) fn adds_bos(self) -> bool {
        matches!(self, Self::Llama3 | Self::Tekken)
    }

    pub(super) fn pre_tokenizer(self) -> Result<PreTokenizerWrapper> {
        let bytes = |splits| ByteLevel::new(false, false, splits);
        let patterns = match self {
            Self::Gpt2 => return Ok(bytes(true).into()),
            Self::SmolLm => {
                return Ok(Sequence::new(vec![Digits::new(true).into(), bytes(true).into()]).into());
            }
            Self::Llama3 | Self::Dbrx => &[LLAMA3][..],
            Self::Qwen2 => &[QWEN2],
            Self::Seed => &[SEED],
            Self::Tekken => &[TEKKEN],
            Self::Gpt4o => &[GPT4O],
            Self::Hunyuan => &HUNYUAN,
        };
        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for &pattern in patterns {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(failed)?;
            steps.push(split.into());
        }
        steps.push(bytes(false).into());
        Ok(Sequence::new(steps).into())
    }
}

#[cfg(test)]
mod tests {
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    use super::*;
    use crate::gguf::Gguf;

    fn words(words: Words, text: &str) -> Vec<String> {
        let mut text = PreTokenizedString::from(text);
        words.pre_tokenizer().unwrap().pre_tokenize(&mut text).unwrap();
        let splits = text.get_splits(OffsetReferential::Original, OffsetType::Byte);
        splits.into_iter().map(|(word, ..)| word.to_owned()).collect()
    }

    /// By each family's published expression: contractions, digits, capitals, white space and slashes tell them apart.
    #[test]
    fn each_family_cuts_words_by_its_expression() {
        let text = "camelCase ISN'T 12345!\n/x  y's";
        for (family, expected) in [
            (Words::Gpt2, "camelCase|ĠISN|'|T|Ġ12345|!|Ċ|/|x|Ġ|Ġy|'s"),
            (Words::SmolLm, "camelCase|ĠISN|'|T|Ġ|1|2|3|4|5|!|Ċ|/|x|Ġ|Ġy|'s"),
            (Words::Llama3, "camelCase|ĠISN|'T|Ġ|123|45|!Ċ|/x|Ġ|Ġy|'s"),
            (Words::Dbrx, "camelCase|ĠISN|'T|Ġ|123|45|!Ċ|/x|Ġ|Ġy|'s"),
            (Words::Qwen2, "camelCase|ĠISN|'T|Ġ|1|2|3|4|5|!Ċ|/x|Ġ|Ġy|'s"),
            (Words::Seed, "camelCase|ĠISN|'T|Ġ|1|2|3|4|5|!|Ċ|/x|Ġ|Ġy|'s"),
            (Words::Tekken, "camel|Case|ĠISN|'T|Ġ|1|2|3|4|5|!Ċ/|x|Ġ|Ġy|'s"),
            (Words::Gpt4o, "camel|Case|ĠISN'T|Ġ|123|45|!Ċ/|x|Ġ|Ġy's"),
            (Words::Hunyuan, "camelCase|ĠISN|'T|Ġ|123|45|!Ċ|/x|Ġ|Ġy|'s"),
        ] {
            assert_eq!(words(family, text).join("|"), expected, "{family:?}");
        }
    }

    #[test]
    fn words_of_gpt_4o_begin_with_capitals_and_keep_contractions() {
        let words = words(Words::Gpt4o, "camelCase isn't 12345!\n/");
        assert_eq!(words, ["camel", "Case", "Ġisn't", "Ġ", "123", "45", "!Ċ/"]);
    }

    /// Numbers and characters of Chinese and Japanese are cut out first, whatever is around them.
    #[test]
    fn words_of_hunyuan_are_of_one_script() {
        let cut = words(Words::Hunyuan, "a中文かb1.net é+");
        let bytes = |text: &str| words(Words::Gpt2, text).concat();
        assert_eq!(cut, ["a", &bytes("中文か"), "b", "1", ".net", &bytes(" é"), "+"]);
    }

    #[test]
    fn words_are_never_guessed() {
        let of = |value: Option<&str>| {
            let mut file = b"GGUF\x03\0\0\0".to_vec();
            file.extend(0u64.to_le_bytes());
            file.extend(u64::from(value.is_some()).to_le_bytes());
            let text = |file: &mut Vec<u8>, text: &str| {
                file.extend((text.len() as u64).to_le_bytes());
                file.extend(text.bytes());
            };
            if let Some(value) = value {
                text(&mut file, KEY);
                file.extend(8u32.to_le_bytes());
                text(&mut file, value);
            }
            Words::of(Gguf::parse(&file).unwrap().metadata())
        };
        for (name, expected) in [
            ("gpt-2", Words::Gpt2),
            ("exaone4", Words::Gpt2),
            ("refact", Words::SmolLm),
            ("command-r", Words::SmolLm),
            ("dbrx", Words::Dbrx),
            ("smaug-bpe", Words::Dbrx),
            ("glm4", Words::Dbrx),
            ("chatglm-bpe", Words::Dbrx),
            ("seed-coder", Words::Seed),
        ] {
            assert_eq!(of(Some(name)).unwrap(), expected);
        }
        assert!(matches!(of(None), Err(Error::MissingKey { key }) if key == KEY));
        let error = of(Some("default")).unwrap_err().to_string();
        assert!(error.contains("tokenizer.ggml.pre is default"), "{error}");
    }
}
