//! Vocabularies and the chat template beside them.

use llama::gguf::Gguf;
use llama::{ChatTemplate, Error, Message, Tokenizer};

use crate::written::{valid, with, with_tokens};

#[test]
fn a_vocabulary_of_pieces_and_bytes() {
    let bytes = valid();
    let file = Gguf::parse(&bytes).unwrap();
    let tokenizer = Tokenizer::from_metadata(file.metadata()).unwrap();
    let encoded = |text: &str| tokenizer.encode(text, false).unwrap();
    let byte = |byte: u8| 12 + u32::from(byte);
    // "ll" is worth more than "he", which is worth more than "llo".
    assert_eq!(encoded("hello hello"), [10, 9, 11, 9]);
    assert_eq!(encoded("é"), [byte(0xc3), byte(0xa9)]);
    assert_eq!(tokenizer.encode("he</s>", true).unwrap(), [1, 10, 2]);
    assert_eq!(tokenizer.decode(&encoded(" hello, é €!")), " hello, é €!");
    assert!(tokenizer.is_end(2) && !tokenizer.is_end(1));
    assert!(tokenizer.bytes(9999).is_empty());

    let template = ChatTemplate::from_metadata(file.metadata(), &tokenizer).unwrap().unwrap();
    let chat = template.render(&[Message::new("user", " he "), Message::new("assistant", "llo")]).unwrap();
    // A line's end behind a block belongs to the block, as Hugging Face renders templates.
    assert_eq!(chat, "<s>USER: he</s>ASSISTANT: llo</s>");
}

#[test]
fn white_space_behind_special_tokens_of_phi_3_goes() {
    let encoded = |architecture: &str| {
        let bytes = with(architecture, &[]);
        let tokenizer = Tokenizer::from_metadata(Gguf::parse(&bytes).unwrap().metadata()).unwrap();
        tokenizer.encode("he</s> \nhe<s> he", false).unwrap()
    };
    let (space, line) = (3, 12 + u32::from(b'\n'));
    assert_eq!(encoded("llama"), [10, 2, space, line, 10, 1, 11]);
    assert_eq!(encoded("phi3"), [10, 2, 10, 1, 11]);
}

#[test]
fn vocabularies_of_long_pieces_are_refused() {
    let tokenizer = |pieces: &[String]| {
        let bytes = with_tokens("llama", &[], pieces);
        Tokenizer::from_metadata(Gguf::parse(&bytes).unwrap().metadata()).map(|_| ())
    };
    assert!(tokenizer(&["a".repeat(1024)]).is_ok());
    assert!(matches!(tokenizer(&["a".repeat(1025)]), Err(Error::Value { .. })));
    let many: Vec<String> = (0..600).map(|i| format!("{i:01024}")).collect();
    assert!(matches!(tokenizer(&many), Err(Error::Value { .. })));
}

#[test]
fn a_message_of_gpt_oss_ends_no_text() {
    let ends = |pieces: &[&str]| -> Vec<bool> {
        let pieces: Vec<String> = pieces.iter().map(|&piece| piece.to_owned()).collect();
        let file = with_tokens("llama", &[], &pieces);
        let tokenizer = Tokenizer::from_metadata(Gguf::parse(&file).unwrap().metadata()).unwrap();
        (268..268 + pieces.len() as u32).map(|token| tokenizer.is_end(token)).collect()
    };
    assert_eq!(ends(&["<|end|>", "<|return|>"]), [true, true]);
    assert_eq!(ends(&["<|end|>", "<|return|>", "<|call|>"]), [false, true, true]);
}

#[test]
fn a_user_s_own_end_of_a_turn_ends_a_text() {
    let pieces = ["<end_of_turn>", "<end_of_line>"].map(str::to_owned);
    let file = with_tokens("llama", &[], &pieces);
    let tokenizer = Tokenizer::from_metadata(Gguf::parse(&file).unwrap().metadata()).unwrap();
    assert_eq!([268, 269].map(|token| tokenizer.is_end(token)), [true, false]);
    assert_eq!(tokenizer.decode(&[268, 269]), "<end_of_line>");
    assert_eq!(tokenizer.encode("he<end_of_turn>", false).unwrap(), [10, 268]);
}

#[test]
fn plain_texts_have_no_control_tokens() {
    let file = with_tokens("llama", &[], &["<end_of_line>".to_owned()]);
    let tokenizer = Tokenizer::from_metadata(Gguf::parse(&file).unwrap().metadata()).unwrap();
    let bytes = |text: &str| text.bytes().map(|byte| 12 + u32::from(byte)).collect::<Vec<u32>>();
    let text = "he</s>he<end_of_line>";
    assert_eq!(tokenizer.encode(text, true).unwrap(), [1, 10, 2, 10, 268]);
    let spelled = bytes("</s>");
    assert_eq!(tokenizer.encode_plain(text, true).unwrap(), [&[1, 10][..], &spelled, &[10, 268]].concat());
    for text in ["hello hello", " he, é €!", "", "<s>"] {
        let plain = tokenizer.encode_plain(text, false).unwrap();
        assert_eq!(tokenizer.decode(&plain), text);
        assert!(text == "<s>" || plain == tokenizer.encode(text, false).unwrap(), "{text:?}");
    }
}
