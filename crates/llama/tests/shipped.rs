//! The model of this repository: how well it predicts a document that it wasn't trained on, in each format.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use backend_api::{ComputeBackend, DType};
use backend_cpu::CpuBackend;
use llama::gguf::Gguf;
use llama::{Model, Session, SessionOptions, Tokenizer, generate};
use llama::{Sampler, Sampling};

/// Bytes of the held-out document that are predicted.
const BYTES: usize = 4000;

/// Bytes that all files together may have.
const MAX_BYTES: usize = 4_000_000;

fn crate_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(format: &str) -> Vec<u8> {
    let path = crate_dir().join("models").join(format!("bytes-1m-{format}.gguf"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn session(bytes: &[u8], activations: DType) -> (Session, Tokenizer) {
    let file = Gguf::parse(bytes).unwrap();
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let model = Arc::new(Model::load_with(&backend, &file, activations, |_, _| ()).unwrap());
    let context = model.config().context_length;
    let session = Session::new(&model, SessionOptions::new(context)).unwrap();
    (session, Tokenizer::from_metadata(file.metadata()).unwrap())
}

fn perplexity(format: &str, activations: DType) -> f64 {
    let (mut session, tokenizer) = session(&read(format), activations);
    let document = std::fs::read_to_string(crate_dir().join("../../docs/reliability.md")).unwrap();
    let tokens = tokenizer.encode(&document, false).unwrap();
    assert_eq!(tokens.len(), document.len(), "a token is a byte");
    llama::perplexity(&mut session, &tokenizer, &tokens[..BYTES]).unwrap().perplexity()
}

#[test]
fn quantising_costs_little() {
    // The weights are numbers of f16, so this file is the model itself.
    let exact = perplexity("f16", DType::F32);
    assert!(exact < 10.0, "a perplexity of {exact}: the model has learnt too little");
    for (format, most) in [("q8_0", 0.005), ("q4_0", 0.06)] {
        let loss = perplexity(format, DType::F32) / exact - 1.0;
        assert!(loss < most, "{format} has a perplexity {:.2} % above {exact}", 100.0 * loss);
    }
    let bytes: usize = ["f16", "q8_0", "q4_0"].map(|format| read(format).len()).iter().sum();
    assert!(bytes <= MAX_BYTES, "{bytes} bytes");
}

/// Activations are rounded several times a layer, each time to a relative 2⁻¹¹: less than Q8_0 may cost.
#[test]
fn activations_of_f16_cost_little() {
    let exact = perplexity("q8_0", DType::F32);
    let loss = perplexity("q8_0", DType::F16) / exact - 1.0;
    assert!(loss.abs() < 0.005, "activations of f16 have a perplexity {:.2} % above {exact}", 100.0 * loss);
}

#[test]
fn it_goes_on_with_a_text() {
    let (mut session, tokenizer) = session(&read("q4_0"), DType::F32);
    let prompt = tokenizer.encode("A kernel is", true).unwrap();
    assert_eq!((prompt.len(), tokenizer.bos()), (12, prompt.first().copied()));
    let mut sampler = Sampler::new(Sampling::greedy());
    let (tokens, _) = generate(&mut session, &tokenizer, &mut sampler, &prompt, 60, |_| true).unwrap();
    let text = tokenizer.decode(&tokens);
    assert!(text.split_whitespace().count() > 5, "{text:?}");
}
