//! Files whose every part is known.

pub(crate) fn text(file: &mut Vec<u8>, text: &str) {
    file.extend((text.len() as u64).to_le_bytes());
    file.extend(text.bytes());
}

pub(crate) fn array(file: &mut Vec<u8>, key: &str, kind: u32, count: usize) {
    text(file, key);
    file.extend(9u32.to_le_bytes());
    file.extend(kind.to_le_bytes());
    file.extend((count as u64).to_le_bytes());
}

/// A file with values of each type, a vocabulary of bytes, a chat template and tensors.
pub(crate) fn valid() -> Vec<u8> {
    with("llama", &[])
}

/// A valid file of an architecture, with more keys of it: names, types and bytes.
pub(crate) fn with(architecture: &str, more: &[(&str, u32, &[u8])]) -> Vec<u8> {
    with_tokens(architecture, more, &[])
}

/// [`with`] more tokens at the vocabulary's end.
pub(crate) fn with_tokens(architecture: &str, more: &[(&str, u32, &[u8])], pieces: &[String]) -> Vec<u8> {
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
    entry("split.count", 2, &1u16.to_le_bytes());
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
    for (id, token) in tokens.iter().enumerate() {
        let kind = match (id, token) {
            (0, _) => 2i32,
            (1 | 2, _) => 3,
            (_, token) if token.starts_with("<|") => 3,
            (_, token) if token.starts_with("<end_") => 4,
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
