//! How vocabularies spell bytes.

use std::collections::HashMap;

use super::{BYTE, CONTROL, SPACE, USER_DEFINED};

/// The spelling of a kind of vocabulary.
#[derive(Debug)]
pub(super) enum Spelling {
    /// A printable character for each byte, as GPT-2 has it.
    Bytes(HashMap<char, u8>),
    /// Text with [`SPACE`] for a space; `<0x0A>` for a byte.
    Spaces,
}

impl Spelling {
    /// GPT-2's table: printable bytes of Latin-1 are themselves, the others are numbered from U+0100 on.
    pub(super) fn bytes() -> Self {
        let is_printable = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
        let (printable, other): (Vec<u8>, Vec<u8>) = (0..=255).partition(is_printable);
        let others = ('\u{100}'..).zip(other);
        Self::Bytes(printable.into_iter().map(|byte| (char::from(byte), byte)).chain(others).collect())
    }

    /// What a token adds to a text.
    pub(super) fn bytes_of(&self, token: &str, kind: u64) -> Vec<u8> {
        match (kind, self) {
            (CONTROL, _) => Vec::new(),
            (BYTE, _) => byte(token).map_or_else(|| token.as_bytes().to_vec(), |byte| vec![byte]),
            (USER_DEFINED, Self::Bytes(_)) => token.as_bytes().to_vec(),
            (_, Self::Spaces) => token.replace(SPACE, " ").into_bytes(),
            (_, Self::Bytes(table)) => {
                let bytes: Option<Vec<u8>> = token.chars().map(|c| table.get(&c).copied()).collect();
                bytes.unwrap_or_else(|| token.as_bytes().to_vec())
            }
        }
    }
}

/// The byte that `<0x0A>` means: two digits, without a sign.
fn byte(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let is_byte = digits.len() == 2 && !digits.starts_with('+');
    is_byte.then(|| u8::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_spell_bytes() {
        let table = Spelling::bytes();
        assert_eq!(table.bytes_of("ĠhÃ¶", 1), " h\u{f6}".as_bytes());
        assert_eq!(table.bytes_of("Ċ", 1), b"\n");
        assert_eq!(table.bytes_of("<|im_end|>", CONTROL), b"");
        assert_eq!(Spelling::Spaces.bytes_of("▁a▁b", 1), b" a b");
        assert_eq!(Spelling::Spaces.bytes_of("<0xE2>", BYTE), [0xe2]);
        assert_eq!(Spelling::Spaces.bytes_of("<0xE2>", 1), b"<0xE2>");
        assert_eq!(byte("<0x+A>"), None);
    }
}
