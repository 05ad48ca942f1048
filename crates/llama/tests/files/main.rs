//! GGUF files with a few bytes changed, which give an error or a file and never a panic. And files whose every part is
//! checked.

mod config;
mod vocabulary;
mod written;

use backend_api::random::philox_block;
use llama::gguf::{Gguf, GgufErrorKind, Index, Source, TensorType, Value};
use llama::{ChatTemplate, Config, Error, Message, Tokenizer};
use written::{array, text, valid};

/// Files that are tried, unless `CAMPAIGN_INPUTS` says another number; `CAMPAIGN_SEED` gives other ones.
const INPUTS: u64 = 20_000;

#[test]
fn a_file_is_read() {
    let bytes = valid();
    let file = Gguf::parse(&bytes).unwrap();
    let value = |key: &str| file.metadata().get(key).cloned();
    assert_eq!(value("small"), Some(Value::Signed(-1)));
    assert_eq!(value("long"), Some(Value::Signed(-5)));
    assert_eq!(value("double"), Some(Value::Float(0.25)));
    assert_eq!(value("tokenizer.ggml.eos_token_id"), Some(Value::Unsigned(2)));
    assert_eq!(value("tokenizer.ggml.add_space_prefix"), Some(Value::Bool(false)));
    let tensor = file.tensor("token_embd.weight").unwrap();
    assert_eq!(
        (tensor.kind, tensor.shape.as_slice(), tensor.data.len()),
        (TensorType::Q8_0, [268, 32].as_slice(), 268 * 34)
    );
    let config = Config::from_gguf(&file).unwrap();
    assert_eq!((config.vocabulary, config.kv_heads, config.head_dim), (268, 2, 16));
}

/// ggml's numbers of types, and elements and bytes of their blocks: `GGML_QUANT_SIZES` of the package `gguf`.
#[test]
fn types_have_the_numbers_and_blocks_of_ggml() {
    let blocks = [
        (0, 1, 4),
        (1, 1, 2),
        (2, 32, 18),
        (3, 32, 20),
        (6, 32, 22),
        (7, 32, 24),
        (8, 32, 34),
        (10, 256, 84),
        (11, 256, 110),
        (12, 256, 144),
        (13, 256, 176),
        (14, 256, 210),
        (20, 32, 18),
        (23, 256, 136),
        (30, 1, 2),
        (39, 32, 17),
    ];
    for number in 0..100 {
        let known = blocks.iter().find(|block| block.0 == number);
        let block = TensorType::from_number(number).block();
        assert_eq!(block, known.map(|&(_, elements, bytes)| (elements, bytes)), "type {number}");
    }
    let name = |number| TensorType::from_number(number).to_string();
    assert_eq!([16, 28, 77].map(name), ["IQ2_XXS", "F64", "of ggml's type 77"]);
    assert_eq!([1, 12, 20].map(name), ["F16", "Q4_K", "IQ4_NL"]);
    let names =
        [(3, "q4_1"), (6, "q5_0"), (7, "q5_1"), (10, "q2_k"), (11, "q3_k"), (20, "iq4_nl"), (23, "iq4_xs")];
    for (number, name) in names {
        let format = TensorType::from_number(number).quant_format();
        assert_eq!(format.map(|format| format.name()), Some(name));
    }
}

#[test]
fn damage_is_named() {
    let parse = |bytes: &[u8]| Gguf::parse(bytes).map(|_| ()).map_err(|error| (error.offset, error.kind));
    assert_eq!(parse(b"GGML...."), Err((0, GgufErrorKind::Magic)));
    assert_eq!(parse(b"GGUF\0\0\0\x03"), Err((4, GgufErrorKind::Version(0x0300_0000))));
    assert_eq!(parse(b"GG"), Err((0, GgufErrorKind::Truncated { need: 4, have: 2 })));
    let mut huge = valid();
    huge[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(parse(&huge), Err((8, GgufErrorKind::Count { what: "tensors", count: u64::MAX })));
    let whole = valid();
    for end in 0..whole.len() - 128 {
        assert!(parse(&whole[..end]).is_err(), "{end} bytes of {} were taken", whole.len());
    }
}

/// In words that someone whose download stopped understands.
#[test]
fn files_that_are_cut_say_where_they_end() {
    let whole = valid();
    let said = |end: usize| Gguf::parse(&whole[..end]).unwrap_err().to_string();
    assert_eq!(said(0), "the file is empty");
    let cut = "it is cut short, or damaged; is the download complete?";
    let header = format!("the file ends at byte 2, but its header needs 4 bytes at byte 0: {cut}");
    assert_eq!(said(2), header);
    let counted = said(40);
    assert!(
        counted.starts_with("at byte 8: the file is too short for ") && counted.ends_with(cut),
        "{counted}"
    );
    let tensor = said(whole.len() - 129);
    let ends = format!("the file ends at byte {}, but the tensor \"", whole.len() - 129);
    assert!(tensor.starts_with(&ends) && tensor.ends_with(cut), "{tensor}");
}

/// A small file could ask for any memory.
#[test]
fn tensors_that_overlap_are_refused() {
    let place = |offset: u64| {
        let mut bytes = valid();
        let name = b"output_norm.weight";
        let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
        // Behind one dimension and the type.
        let offset_at = at + name.len() + 4 + 8 + 4;
        bytes[offset_at..offset_at + 8].copy_from_slice(&offset.to_le_bytes());
        let index = pollster::block_on(Index::read(bytes.as_slice())).map(|_| ());
        (Gguf::parse(&bytes).map(|_| ()).map_err(|error| error.kind), index)
    };
    let end = (268 * 34u64).next_multiple_of(32);
    assert!(matches!(place(end), (Ok(()), Ok(()))));
    for offset in [0, 32, end - 32] {
        let (whole, index) = place(offset);
        assert!(matches!(whole, Err(GgufErrorKind::Overlap(_))), "at {offset}: {whole:?}");
        assert!(matches!(index, Err(Error::Gguf(_))), "at {offset}: {index:?}");
    }
}

#[test]
fn arrays_of_very_many_elements_are_refused() {
    let arrays = |count: usize| {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend(0u64.to_le_bytes());
        file.extend(2u64.to_le_bytes());
        for key in ["a", "b"] {
            array(&mut file, key, 0, count);
            file.resize(file.len() + count, 7);
        }
        Gguf::parse(&file).map(|_| ()).map_err(|error| error.kind)
    };
    assert_eq!(arrays(1000), Ok(()));
    assert_eq!(arrays((1 << 23) + 1), Err(GgufErrorKind::Elements { most: 1 << 24 }));
}

/// A file that can't be read from some byte on.
struct Broken<'a>(&'a [u8], u64);

impl Source for Broken<'_> {
    fn size(&self) -> u64 {
        self.0.size()
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        if offset + into.len() as u64 > self.1 {
            return Err(std::io::Error::other("the disk is gone"));
        }
        self.0.read(offset, into).await
    }
}

#[test]
fn an_index_is_read_from_pieces() {
    let read = |source: &dyn Fn() -> Vec<u8>| pollster::block_on(Index::read(source().as_slice()));
    let index = read(&valid).unwrap();
    assert_eq!((index.bytes(), index.parameters()), (268 * 34 + 128, 268 * 32 + 32));
    let bytes = valid();
    let file = Gguf::parse(&bytes).unwrap();
    assert!(index.metadata().iter().eq(file.metadata().iter()));
    let config = pollster::block_on(index.config(bytes.as_slice())).unwrap();
    assert_eq!(config, Config::from_gguf(&file).unwrap());

    // A header longer than what is read first.
    let mut long = b"GGUF\x03\0\0\0".to_vec();
    long.extend(0u64.to_le_bytes());
    long.extend(1u64.to_le_bytes());
    text(&mut long, "long");
    long.extend(8u32.to_le_bytes());
    text(&mut long, &"x".repeat(9 << 20));
    let index = read(&|| long.clone()).unwrap();
    assert_eq!(index.metadata().get("long").and_then(Value::text).map(str::len), Some(9 << 20));
    assert!(matches!(read(&|| long[..5 << 20].to_vec()), Err(Error::Gguf(_))));

    let error = pollster::block_on(Index::read(&Broken(&bytes, 100))).unwrap_err();
    assert_eq!(error.to_string(), "the file can't be read: the disk is gone");
}

/// Files disagree on whether such a token is a control token or a user's own.
/// Ollama's files of Gemma 3 name bases otherwise, and newer ones say what used to be known of the architecture.
#[test]
fn mutated_files() {
    let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
    let (seed, inputs) = (number("CAMPAIGN_SEED").unwrap_or(0), number("CAMPAIGN_INPUTS").unwrap_or(INPUTS));
    let valid = valid();
    // What follows the header are numbers.
    let head = valid.len() - 268 * 34 - 128;
    let mut taken = 0;
    for case in 0..inputs {
        let mut file = valid.clone();
        let [count, end, ..] = philox_block(seed, 16 * case);
        for change in 0..1 + u64::from(count % 4) {
            let [at, what, value, bit] = philox_block(seed, 16 * case + 1 + change);
            let at = at as usize % head;
            match what % 4 {
                0 => file[at] = value as u8,
                1 => file[at] ^= 1 << (bit % 8),
                2 => file[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes()),
                _ => file[at..at + 4].copy_from_slice(&value.to_le_bytes()),
            }
        }
        if end % 8 == 0 {
            file.truncate(end as usize / 8 % file.len());
        }
        let (parsed, index) = (Gguf::parse(&file), pollster::block_on(Index::read(file.as_slice())));
        assert_eq!(parsed.is_ok(), index.is_ok(), "{parsed:?}, in pieces {index:?}");
        let Ok(parsed) = parsed else { continue };
        taken += 1;
        _ = Config::from_gguf(&parsed).is_ok();
        // A vocabulary takes long to prepare beside the rest.
        if case % 16 > 0 {
            continue;
        }
        if let Ok(tokenizer) = Tokenizer::from_metadata(parsed.metadata()) {
            _ = tokenizer.encode("hello, hello é", true).is_ok();
            if let Ok(Some(template)) = ChatTemplate::from_metadata(parsed.metadata(), &tokenizer) {
                _ = template.render(&[Message::new("user", "he")]).is_ok();
            }
        }
    }
    println!("{inputs} mutated files, {taken} of them taken");
}

/// A file of 1 GiB whose header claims a text of 300 MiB: it doesn't end where no more of it was looked at.
#[test]
fn long_headers_are_not_told_as_short_files() {
    struct Long(&'static [u8; 4]);
    impl Source for Long {
        fn size(&self) -> u64 {
            1 << 30
        }

        async fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
            let mut head = [self.0.as_slice(), &[3, 0, 0, 0]].concat();
            [0, 1, 300 << 20].into_iter().for_each(|number: u64| head.extend(number.to_le_bytes()));
            into.fill(b'a');
            if let Some(rest) = head.get(offset as usize..) {
                let both = rest.len().min(into.len());
                into[..both].copy_from_slice(&rest[..both]);
            }
            Ok(())
        }
    }
    let error = |magic| pollster::block_on(Index::read(&Long(magic))).unwrap_err().to_string();
    let long = error(b"GGUF");
    assert!(long.contains("more than is read of one"), "{long}");
    // What is wrong at the beginning of a large file is told as it is.
    let other = error(b"GGML");
    assert!(other.contains("not a GGUF file"), "{other}");
}

#[test]
fn short_files_that_begin_otherwise_are_no_gguf() {
    let error = |bytes: &[u8]| Gguf::parse(bytes).unwrap_err().to_string();
    assert!(error(b"hi\n").contains("not a GGUF file"));
    assert!(error(b"GGU").contains("is the download complete?"));
}
