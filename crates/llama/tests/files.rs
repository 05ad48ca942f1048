//! GGUF files with a few bytes changed, which give an error or a file and never a panic. And files whose every part is
//! checked.

use backend_api::random::philox_block;
use llama::gguf::{Gguf, GgufErrorKind, Index, Source, TensorType, Value};
use llama::{ChatTemplate, Config, Error, Message, RopeScaling, Tokenizer};

/// Files that are tried, unless `CAMPAIGN_INPUTS` says another number; `CAMPAIGN_SEED` gives other ones.
const INPUTS: u64 = 20_000;

fn text(file: &mut Vec<u8>, text: &str) {
    file.extend((text.len() as u64).to_le_bytes());
    file.extend(text.bytes());
}

fn array(file: &mut Vec<u8>, key: &str, kind: u32, count: usize) {
    text(file, key);
    file.extend(9u32.to_le_bytes());
    file.extend(kind.to_le_bytes());
    file.extend((count as u64).to_le_bytes());
}

/// A file with values of each type, a vocabulary of bytes, a chat template and tensors.
fn valid() -> Vec<u8> {
    with("llama", &[])
}

/// A valid file of an architecture, with more keys of it: names, types and bytes.
fn with(architecture: &str, more: &[(&str, u32, &[u8])]) -> Vec<u8> {
    with_tokens(architecture, more, &[])
}

/// [`with`] more tokens at the vocabulary's end.
fn with_tokens(architecture: &str, more: &[(&str, u32, &[u8])], pieces: &[String]) -> Vec<u8> {
    let mut entries = Vec::new();
    let mut count = 0u64;
    let mut entry = |key: &str, kind: u32, value: &[u8]| {
        text(&mut entries, key);
        entries.extend(kind.to_le_bytes());
        entries.extend(value);
        count += 1;
    };
    let string = |value: &str| {
        let mut bytes = Vec::new();
        text(&mut bytes, value);
        bytes
    };
    entry("general.architecture", 8, &string(architecture));
    for &(key, kind, value) in more {
        entry(&format!("{architecture}.{key}"), kind, value);
    }
    for (key, value) in [
        ("context_length", 64u32),
        ("embedding_length", 32),
        ("block_count", 1),
        ("feed_forward_length", 32),
        ("attention.head_count", 2),
    ] {
        entry(&format!("{architecture}.{key}"), 4, &value.to_le_bytes());
    }
    entry(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 6, &1e-5f32.to_le_bytes());
    entry("small", 1, &[0xff]);
    entry("long", 11, &(-5i64).to_le_bytes());
    entry("double", 12, &0.25f64.to_le_bytes());
    entry("tokenizer.ggml.model", 8, &string("llama"));
    entry("tokenizer.ggml.bos_token_id", 4, &1u32.to_le_bytes());
    entry("tokenizer.ggml.eos_token_id", 10, &2u64.to_le_bytes());
    entry("tokenizer.ggml.add_space_prefix", 7, &[0]);
    entry(
        "tokenizer.chat_template",
        8,
        &string(
            "{{ bos_token }}{% for m in messages %}\n{{ m.role.upper() }}: {{ m.content.strip() }}</s>{% endfor %}",
        ),
    );
    let words = ["<unk>", "<s>", "</s>", "▁", "h", "e", "l", "o", "ll", "llo", "he", "▁he"];
    let tokens: Vec<String> = words
        .iter()
        .map(|&word| word.to_owned())
        .chain((0..256).map(|byte| format!("<0x{byte:02X}>")))
        .chain(pieces.iter().cloned())
        .collect();
    array(&mut entries, "tokenizer.ggml.tokens", 8, tokens.len());
    tokens.iter().for_each(|token| text(&mut entries, token));
    array(&mut entries, "tokenizer.ggml.token_type", 5, tokens.len());
    for id in 0..tokens.len() {
        let kind = match (id, &tokens[id]) {
            (0, _) => 2i32,
            (1 | 2, _) => 3,
            (_, token) if token.starts_with("<|") => 3,
            _ if (words.len()..268).contains(&id) => 6,
            _ => 1,
        };
        entries.extend(kind.to_le_bytes());
    }
    array(&mut entries, "tokenizer.ggml.scores", 6, tokens.len());
    for id in 0..tokens.len() {
        entries.extend((-(id as f32)).to_le_bytes());
    }
    count += 3;

    let mut tensors = Vec::new();
    let mut offset = 0u64;
    for (name, shape, kind, bytes) in
        [("token_embd.weight", vec![32u64, 268], 8u32, 268 * 34), ("output_norm.weight", vec![32], 0, 128)]
    {
        text(&mut tensors, name);
        tensors.extend((shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|extent| tensors.extend(extent.to_le_bytes()));
        tensors.extend(kind.to_le_bytes());
        tensors.extend(offset.to_le_bytes());
        offset += u64::next_multiple_of(bytes, 32);
    }
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend(2u64.to_le_bytes());
    file.extend(count.to_le_bytes());
    file.extend(entries);
    file.extend(tensors);
    file.resize(file.len().next_multiple_of(32) + offset as usize, 0);
    file
}

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

/// llama.cpp does so by the model's name, as the files don't say it.
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

#[test]
fn other_models_are_refused_by_key() {
    let replaced = |from: &str, to: &str| {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let mut bytes = valid();
        let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
        bytes[at..at + to.len()].copy_from_slice(to);
        bytes
    };
    let key = |bytes: &[u8]| match Config::from_gguf(&Gguf::parse(bytes).unwrap()) {
        Err(Error::Value { key, .. } | Error::MissingKey { key }) => key,
        other => panic!("{other:?}"),
    };
    assert_eq!(key(&replaced("llama", "bloom")), "general.architecture");
    assert_eq!(key(&replaced("block_count", "block_cound")), "llama.block_count");
    assert_eq!(
        key(&replaced("head_count\x04\0\0\0\x02", "head_count\x04\0\0\0\0")),
        "llama.attention.head_count"
    );
}

#[test]
fn scaling_of_rotations_is_computed_or_refused() {
    let scaling = |more: &[(&str, u32, &[u8])]| {
        let bytes = with("llama", more);
        Config::from_gguf(&Gguf::parse(&bytes).unwrap()).map(|config| config.rope.scaling).ok()
    };
    let kind = |name: &str| {
        let mut bytes = Vec::new();
        text(&mut bytes, name);
        bytes
    };
    let factor = |factor: f32| factor.to_le_bytes();
    let [one, four] = [factor(1.0), factor(4.0)];
    assert_eq!(scaling(&[]), Some(RopeScaling::None));
    assert_eq!(scaling(&[("rope.scaling.factor", 6, &four)]), Some(RopeScaling::Linear(4.0)));
    assert_eq!(scaling(&[("rope.scaling.factor", 6, &one)]), Some(RopeScaling::None));
    assert_eq!(scaling(&[("rope.scale_linear", 6, &four)]), Some(RopeScaling::Linear(4.0)));
    let typed =
        |name: &str| scaling(&[("rope.scaling.type", 8, &kind(name)), ("rope.scaling.factor", 6, &four)]);
    assert_eq!(typed("none"), Some(RopeScaling::None));
    assert_eq!(typed("linear"), Some(RopeScaling::Linear(4.0)));
    assert_eq!(typed("yarn"), None, "without the original context");
    assert_eq!(typed("llama3"), None);
    assert_eq!(typed("longrope"), None, "without its factors");
    let (kind, original) = (kind("yarn"), 4096u32.to_le_bytes());
    let yarn = |more: &[(&str, u32, &[u8])]| {
        let keys: [(&str, u32, &[u8]); 3] = [
            ("rope.scaling.type", 8, &kind),
            ("rope.scaling.factor", 6, &four),
            ("rope.scaling.original_context_length", 4, &original),
        ];
        scaling(&[&keys, more].concat())
    };
    let Some(RopeScaling::Yarn { factors, magnitude }) = yarn(&[]) else { panic!("no YaRN") };
    // Of 8 pairs, 2.6 turns 32 times and 5.6 once: the range is from 2 to 6.
    let expected = [1.0, 1.0, 1.0, 1.0 / 0.8125, 1.6, 1.0 / 0.4375, 4.0, 4.0];
    assert!(factors.iter().zip(expected).all(|(got, want)| (got - want).abs() < 1e-12), "{factors:?}");
    assert!((magnitude - (1.0 + 0.1 * 4f64.ln())).abs() < 1e-12, "{magnitude}");
    let Some(RopeScaling::Yarn { magnitude: scaled, .. }) = yarn(&[("rope.scaling.attn_factor", 6, &four)])
    else {
        panic!("no YaRN")
    };
    assert!((scaled - 4.0 * magnitude).abs() < 1e-12, "{scaled}");
    for key in ["yarn_log_multiplier", "yarn_ext_factor"] {
        assert_eq!(yarn(&[(&format!("rope.scaling.{key}"), 6, &four)]), None, "{key}");
    }
    assert_eq!(scaling(&[("rope.scaling.factor", 6, &factor(-1.0))]), None);
    assert_eq!(scaling(&[("rope.scaling.attn_factor", 6, &four)]), None);
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
fn windows_that_a_file_leaves_out() {
    let window = |architecture: &str, more: &[(&str, u32, &[u8])]| {
        let bytes = with(architecture, more);
        Config::from_gguf(&Gguf::parse(&bytes).unwrap()).map(|config| config.window).ok()
    };
    let given = [("attention.sliding_window", 4, &512u32.to_le_bytes()[..])];
    assert_eq!(window("llama", &[]), Some(None));
    assert_eq!(window("gemma2", &[]), Some(Some(4096)));
    assert_eq!(window("gemma2", &given), Some(Some(512)));
    assert_eq!(window("gemma3", &[]), None);
    assert_eq!(window("gemma3", &given), Some(Some(512)));
    let four = 4u32.to_le_bytes();
    let experts =
        ["expert_count", "expert_used_count", "expert_feed_forward_length"].map(|key| (key, 4, &four[..]));
    assert_eq!(window("gpt-oss", &experts), None);
    assert_eq!(window("gpt-oss", &given), None, "without experts");
    assert_eq!(window("gpt-oss", &[&experts[..], &given].concat()), Some(Some(512)));
}

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
