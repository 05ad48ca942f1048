//! Token ids against those of the crate `tokenizers`, which reads the same file: every character, texts of
//! several languages, and random mixtures of what is special.

use std::path::Path;
use std::sync::LazyLock;

use minilm::{MAX_TOKENS, ModelDir, Tokenizer};

const SENTENCES: &str = include_str!("fixtures/sentences.txt");

/// Pieces of random texts.
const PIECES: [&str; 24] = [
    " ",
    "\n",
    "\u{3000}",
    "un",
    "AFF",
    "able",
    "ß",
    "É",
    "e\u{301}\u{323}",
    "Σ",
    "ΟΔΟΣ",
    "İ",
    "中文",
    "한국어",
    "が",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[UNK",
    "##ing",
    "…",
    "—",
    "\u{200d}",
    "👩\u{1f3fd}\u{200d}🔬",
];

static TOKENIZERS: LazyLock<(Tokenizer, tokenizers::Tokenizer)> = LazyLock::new(|| {
    let dir = ModelDir::locate(None).unwrap_or_else(|error| panic!("{error}"));
    let file = dir.path().join("tokenizer.json");
    let ours = Tokenizer::from_bytes(&std::fs::read(&file).unwrap()).unwrap();
    (ours, reference(&file))
});

/// Set up here rather than by the crate under test.
fn reference(file: &Path) -> tokenizers::Tokenizer {
    let mut tokenizer = tokenizers::Tokenizer::from_file(file).unwrap();
    let truncation = tokenizers::TruncationParams { max_length: MAX_TOKENS, ..Default::default() };
    tokenizer.with_truncation(Some(truncation)).unwrap().with_padding(None);
    tokenizer
}

fn compare(texts: &[String]) {
    let (ours, reference) = &*TOKENIZERS;
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let expected = reference.encode_batch_fast(texts.clone(), true).unwrap();
    for ((text, ids), expected) in texts.iter().zip(ours.encode(&texts)).zip(expected) {
        assert_eq!(ids, expected.get_ids(), "{text:?}");
    }
}

#[test]
fn every_character() {
    let characters: Vec<char> = ('\0'..=char::MAX).collect();
    for some in characters.chunks(1 << 16) {
        // Alone, inside of a word, and twice at its end.
        let text = |some: &[char]| some.iter().map(|c| format!("{c} a{c}b a{c}{c} ")).collect();
        compare(&some.chunks(8).map(text).collect::<Vec<String>>());
    }
}

#[test]
fn sentences_and_documents() {
    let documents = [include_str!("../../../README.md"), include_str!("../../../docs/operations.md")];
    let passages = documents.iter().flat_map(|document| minilm::split(document)).map(|passage| passage.text);
    compare(&SENTENCES.lines().map(str::to_owned).chain(passages).collect::<Vec<_>>());
}

#[test]
fn random_mixtures() {
    // A linear congruential generator: any sequence will do, and always the same one.
    let mut state = 1u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let mut text = || (0..below(300)).map(|_| PIECES[below(PIECES.len())]).collect();
    let texts: Vec<String> = (0..5000).map(|_| text()).collect();
    compare(&texts);
}
