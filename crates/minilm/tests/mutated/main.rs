//! Configurations, checkpoints and tokenizers with a few bytes changed: an error or a model, never a panic,
//! and no more memory than the input's size explains.
//!
//! `CAMPAIGN_SEED` gives other changes, `CAMPAIGN_INPUTS` more of them.

mod allocated;
mod model;

use conformance::mutate::mutated;
use minilm::{Config, MAX_TOKENS, Tokenizer};

/// Bytes that a parser may ask for, for each byte of its input and besides: a text of JSON becomes a tree,
/// and a checkpoint is copied into the backend's memory.
const BYTES_PER_BYTE: usize = 256;
const BYTES_BESIDES: usize = 1 << 18;

/// Bytes of the checkpoint that are mutated: what follows are numbers.
const HEAD: usize = 2000;

/// Inputs of each kind, unless there are to be more.
const INPUTS: u64 = 20_000;

/// A parser: whether it took the input, or what is wrong with it.
type Parser = fn(&[u8]) -> Result<bool, String>;

fn check(name: &str, valid: &[u8], parse: Parser) {
    assert_eq!(parse(valid), Ok(true), "what is mutated is valid");
    let number = |variable: &str| std::env::var(variable).ok().and_then(|text| text.parse::<u64>().ok());
    let (seed, inputs) = (number("CAMPAIGN_SEED").unwrap_or(0), number("CAMPAIGN_INPUTS").unwrap_or(INPUTS));
    let whole = model::checkpoint().len();
    let mut taken = 0;
    for case in 0..inputs {
        let input = mutated(&format!("{name} {seed} {case}"), valid);
        let (result, asked_for) = allocated::by(|| parse(&input));
        let about = || format!("{name}, seed {seed}, case {case}: {}", input.escape_ascii());
        taken += usize::from(result.unwrap_or_else(|why| panic!("{}: {why}", about())));
        let bound = BYTES_PER_BYTE * (input.len() + whole) + BYTES_BESIDES;
        assert!(asked_for <= bound, "{}: {asked_for} bytes were asked for", about());
    }
    println!("{name}: {inputs} mutated inputs, {taken} of them taken");
}

#[test]
fn configurations() {
    check("a configuration", model::CONFIG.as_bytes(), |bytes| Ok(Config::from_json(bytes).is_ok()));
}

#[test]
fn configurations_of_a_model() {
    check("a model's configuration", model::CONFIG.as_bytes(), |bytes| {
        model::load(&model::checkpoint(), bytes)
    });
}

#[test]
fn checkpoints() {
    check("a checkpoint", &model::checkpoint()[..HEAD], |bytes| {
        let file = [bytes, &model::checkpoint()[HEAD..]].concat();
        model::load(&file, model::CONFIG.as_bytes())
    });
}

#[test]
fn tokenizers() {
    check("a tokenizer", model::TOKENIZER.as_bytes(), |bytes| {
        let Ok(tokenizer) = Tokenizer::from_bytes(bytes) else { return Ok(false) };
        let longest =
            tokenizer.encode(&["un[SEP] unaffable", &"un, ".repeat(200)]).iter().map(Vec::len).max();
        if longest > Some(MAX_TOKENS) { Err(format!("{longest:?} tokens")) } else { Ok(true) }
    });
}
