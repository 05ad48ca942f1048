//! The model of this repository: how well it predicts a document that it wasn't trained on, in each format, and what
//! becomes of texts and chats with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use backend_api::{ComputeBackend, DType, MathMode};
use backend_cpu::CpuBackend;
use llama::gguf::{Gguf, Index};
use llama::{ChatPrompt, Input, Message, Precision, Sampler, Sampling};
use llama::{Ended, Error, Generation, Model, Progress, Session, SessionOptions, Tokenizer, generate};

/// A part of a document that the model wasn't trained on, which stays as it is.
const HELD_OUT: &str = include_str!("../models/held-out.txt");

/// What README.md says of the perplexity of a byte of [`HELD_OUT`].
const PERPLEXITY: std::ops::Range<f64> = 3.5..4.5;

/// Bytes that all files together may have.
const MAX_BYTES: usize = 4_000_000;

fn crate_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(format: &str) -> Vec<u8> {
    let path = crate_dir().join("models").join(format!("bytes-1m-{format}.gguf"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn session(bytes: &[u8], precision: Precision) -> (Session, Tokenizer) {
    session_with(bytes, precision, MathMode::Standard)
}

fn session_with(bytes: &[u8], precision: Precision, math: MathMode) -> (Session, Tokenizer) {
    let file = Gguf::parse(bytes).unwrap();
    let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
    let model = Model::load_with(&backend, &file, precision, |_, _| ()).unwrap();
    let model = Arc::new(model.with_math(math));
    let context = model.config().context_length;
    let session = Session::new(&model, SessionOptions::new(context)).unwrap();
    (session, Tokenizer::from_metadata(file.metadata()).unwrap())
}

/// The most probable token, by logits that are divided for what was there lately.
fn penalised(repetition_penalty: f32) -> Sampling {
    let mut sampling = Sampling::greedy();
    sampling.repetition_penalty = repetition_penalty;
    sampling
}

fn perplexity(format: &str, precision: Precision) -> f64 {
    let (mut session, tokenizer) = session(&read(format), precision);
    let tokens = tokenizer.encode(HELD_OUT, true).unwrap();
    assert_eq!(tokens.len(), 1 + HELD_OUT.len(), "a token is a byte");
    llama::perplexity(&mut session, &tokenizer, &tokens).unwrap().perplexity()
}

#[test]
fn quantising_costs_little() {
    // The weights are numbers of f16, so this file is the model itself.
    let exact = perplexity("f16", Precision::F32);
    assert!(PERPLEXITY.contains(&exact), "a perplexity of {exact}, README.md says {PERPLEXITY:?}");
    for (format, most) in [("q8_0", 0.005), ("q4_0", 0.06)] {
        let loss = perplexity(format, Precision::F32) / exact - 1.0;
        assert!(loss < most, "{format} has a perplexity {:.2} % above {exact}", 100.0 * loss);
    }
    let bytes: usize = ["f16", "q8_0", "q4_0"].map(|format| read(format).len()).iter().sum();
    assert!(bytes <= MAX_BYTES, "{bytes} bytes");
}

/// llama.cpp's numbers, from the probabilities of each chunk by itself, in a model that expects texts to begin with
/// their token and in the one that it is without that.
#[test]
fn chunks_are_llama_cpps() {
    const CONTEXT: usize = 48;
    for adds_bos in [true, false] {
        let mut bytes = read("q8_0");
        let key = b"tokenizer.ggml.add_bos_token";
        let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
        // Behind the type of the value, four bytes.
        bytes[at + key.len() + 4] = adds_bos.into();
        let (whole, tokenizer) = session(&bytes, Precision::F32);
        let options = SessionOptions::new(CONTEXT).with_cache(DType::F32.into());
        let mut session = Session::new(whole.model(), options).unwrap();
        let bos = tokenizer.bos().unwrap();
        let text = &HELD_OUT[..3 * CONTEXT + 20];
        let tokens = tokenizer.encode(text, true).unwrap();
        assert_eq!(tokens.first() == Some(&bos), adds_bos);

        let mut expected = (0, 0.0);
        for chunk in tokens.chunks_exact(CONTEXT) {
            let mut chunk = chunk.to_vec();
            if adds_bos {
                chunk[0] = bos;
            }
            session.truncate(0, 0);
            // Position i has the log-probability of token i + 1, as llama.cpp takes the logits of the second half
            // but for the last ones.
            let log_probabilities = session.log_probabilities(0, &chunk).unwrap();
            for log_probability in &log_probabilities[CONTEXT / 2..] {
                expected.0 += 1;
                expected.1 += f64::from(*log_probability);
            }
        }
        let score = llama::perplexity(&mut session, &tokenizer, &tokens).unwrap();
        assert_eq!((score.tokens, score.log_probability), expected);
        assert_eq!((score.tokens, score.bytes), (3 * (CONTEXT / 2 - 1), score.tokens));

        // Of a text that the context holds, all but the first.
        let short = llama::perplexity(&mut session, &tokenizer, &tokens[..CONTEXT]).unwrap();
        assert_eq!(short.tokens, CONTEXT - 1);
        let nothing = llama::perplexity(&mut session, &tokenizer, &[]).unwrap();
        assert_eq!(nothing.tokens, 0);
    }
}

/// Activations are rounded several times a layer, each time to a relative 2⁻¹¹: less than Q8_0 may cost.
#[test]
fn activations_of_f16_cost_little() {
    let exact = perplexity("q8_0", Precision::F32);
    let loss = perplexity("q8_0", Precision::Mixed) / exact - 1.0;
    assert!(loss.abs() < 0.001, "activations of f16 have a perplexity {:.2} % above {exact}", 100.0 * loss);
}

/// Of texts in one pass and of single tokens. A rounded activation is off by a 254th of the largest of its block at
/// most, which weights of four bits are many times over.
#[test]
fn activations_of_8_bits_cost_little() {
    for format in ["q8_0", "q4_0"] {
        let perplexity = |math| {
            let (mut session, tokenizer) = session_with(&read(format), Precision::F32, math);
            let tokens = tokenizer.encode(HELD_OUT, true).unwrap();
            let whole = llama::perplexity(&mut session, &tokenizer, &tokens).unwrap().perplexity();
            session.truncate(0, 0);
            let (mut sum, tokens) = (0.0, &tokens[..200]);
            for pair in tokens.windows(2) {
                let logits = session.decode(0, &pair[..1]).unwrap();
                let total: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
                sum += total.ln() - f64::from(logits[pair[1] as usize]);
            }
            [whole, (sum / (tokens.len() - 1) as f64).exp()]
        };
        let (exact, rounded) = (perplexity(MathMode::Standard), perplexity(MathMode::Int8));
        for (exact, rounded) in exact.into_iter().zip(rounded) {
            let loss = rounded / exact - 1.0;
            assert!(loss != 0.0, "no activation of {format} was rounded");
            assert!(loss.abs() < 0.01, "{format} has a perplexity {:.2} % above {exact}", 100.0 * loss);
        }
    }
}

/// Tokens are bytes, so that lengths are known. Before the first stands the token that begins a text.
#[test]
fn chats_forget_their_oldest_messages() {
    let (_, tokenizer) = session(&read("q4_0"), Precision::F32);
    let chat = |parts: &[(&str, &str)]| -> Vec<Message> {
        parts.iter().map(|&(role, content)| Message::new(role, content)).collect()
    };
    let messages = chat(&[("system", "be"), ("user", "first"), ("assistant", "one"), ("user", "second")]);
    let prompt = |messages: &[Message], context, answer| {
        let prompt = ChatPrompt::new(&tokenizer, None, messages, context, answer)?;
        Ok::<_, Error>((tokenizer.decode(&prompt.tokens), prompt.forgotten))
    };
    let whole = "befirstonesecond".to_owned();
    assert_eq!(prompt(&messages, 21, 4).unwrap(), (whole.clone(), 0));
    assert_eq!(prompt(&messages, 20, 4).unwrap(), ("besecond".to_owned(), 2));
    // An answer may be short: it gets a quarter of the context at most.
    assert_eq!(prompt(&messages, 23, 1000).unwrap(), (whole, 0));
    assert_eq!(prompt(&messages[1..], 12, 4).unwrap(), ("second".to_owned(), 2));
    let refused = prompt(&messages, 8, 4).unwrap_err();
    assert!(matches!(refused, Error::MessageTooLong { tokens: 9, context: 8, answer: 2 }), "{refused}");
}

#[test]
fn it_goes_on_with_a_text() {
    let (mut session, tokenizer) = session(&read("q4_0"), Precision::F32);
    let prompt = tokenizer.encode("A kernel is", true).unwrap();
    assert_eq!((prompt.len(), tokenizer.bos()), (12, prompt.first().copied()));
    let mut sampler = Sampler::new(Sampling::greedy());
    let (tokens, _) = generate(&mut session, &tokenizer, &mut sampler, &prompt, 60, |_| true).unwrap();
    let text = tokenizer.decode(&tokens);
    assert!(text.split_whitespace().count() > 5, "{text:?}");
}

/// What the session has of a text is recent as well: a text is the one that a session without it would make.
#[test]
fn texts_that_go_on_remember_what_is_recent() {
    let (mut session, tokenizer) = session(&read("q8_0"), Precision::F32);
    let prompt = tokenizer.encode("A kernel is compiled for each buffer", true).unwrap();
    let sampling = penalised(4.0);
    let texts = [0, 3, prompt.len() - 1].map(|len| {
        session.truncate(0, 0);
        if len > 0 {
            session.step(&[Input { sequence: 0, tokens: &prompt[..len] }]).unwrap();
        }
        let mut sampler = Sampler::new(sampling);
        generate(&mut session, &tokenizer, &mut sampler, &prompt, 12, |_| true).unwrap().0
    });
    assert_eq!(texts[1], texts[0]);
    assert_eq!(texts[2], texts[0]);
    // A session that has the whole prompt has no logits to go on with.
    session.truncate(0, 0);
    session.step(&[Input { sequence: 0, tokens: &prompt }]).unwrap();
    let mut sampler = Sampler::new(sampling);
    let error = generate(&mut session, &tokenizer, &mut sampler, &prompt, 1, |_| true).unwrap_err();
    assert!(error.to_string().contains("number of tokens is 0"), "{error}");
}

/// What a [`Generation`] makes after `prompt`, and the parts that it came in.
async fn generated(
    session: &mut Session,
    tokenizer: &Tokenizer,
    sampling: Sampling,
    prompt: &[u32],
    count: usize,
) -> (Vec<u32>, Vec<Progress>) {
    let mut text = Generation::new(session, Sampler::new(sampling), prompt, count);
    let mut parts = Vec::new();
    while !matches!(parts.last(), Some(Progress::Ended(..))) {
        parts.push(text.next(session, tokenizer, 7).await.unwrap());
    }
    (text.tokens()[prompt.len()..].to_vec(), parts)
}

/// What has ended stays as it is, and what failed may be tried again.
#[test]
fn texts_end_once() {
    pollster::block_on(async {
        let (mut session, tokenizer) = session(&read("q8_0"), Precision::F32);
        let prompt = tokenizer.encode("A kernel is", true).unwrap();
        for (count, context) in [(3, false), (1000, true)] {
            session.truncate(0, 0);
            let mut text = Generation::new(&session, Sampler::new(Sampling::greedy()), &prompt, count);
            let ended = loop {
                if let Progress::Ended(_, ended) = text.next(&mut session, &tokenizer, 64).await.unwrap() {
                    break ended;
                }
            };
            assert_eq!(ended == Ended::Context, context, "{ended:?}");
            let before = (session.len(0), text.tokens().to_vec());
            for _ in 0..2 {
                let again = text.next(&mut session, &tokenizer, 64).await.unwrap();
                assert_eq!(again, Progress::Ended(Vec::new(), ended));
                assert_eq!((session.len(0), text.tokens().to_vec()), before);
            }
        }

        session.truncate(0, 0);
        let mut sampling = Sampling::default();
        (sampling.repetition_penalty, sampling.repetition_window) = (1.1, usize::MAX);
        let mut text = Generation::new(&session, Sampler::new(sampling), &prompt, 3);
        for _ in 0..2 {
            let failed = text.next(&mut session, &tokenizer, 1).await.unwrap_err();
            assert!(matches!(failed, Error::Argument { what: "the repetition window", .. }), "{failed}");
        }
    });
}

#[test]
fn windows_that_no_device_looks_at_are_refused() {
    let (mut session, tokenizer) = session(&read("q8_0"), Precision::F32);
    let prompt = tokenizer.encode("A kernel is", true).unwrap();
    let mut sampling = penalised(1.1);
    for (window, is_taken) in [(32_768, true), (32_769, false), (usize::MAX, false)] {
        sampling.repetition_window = window;
        session.truncate(0, 0);
        let mut sampler = Sampler::new(sampling);
        let logits = session.step(&[Input { sequence: 0, tokens: &prompt }]).unwrap();
        assert_eq!(logits.sample(&mut sampler, &[&prompt]).is_ok(), is_taken, "{window}");
        assert_eq!(session.decode_sampled(0, &[&prompt], &mut sampler, 2).is_ok(), is_taken, "{window}");
    }
}

#[test]
fn a_short_context_is_told() {
    let (whole, tokenizer) = session(&read("q8_0"), Precision::F32);
    for context in 1..4 {
        let mut session = Session::new(whole.model(), SessionOptions::new(context)).unwrap();
        let score = llama::perplexity(&mut session, &tokenizer, &[65; 9]);
        match score {
            Ok(score) => assert_eq!((context, score.tokens), (3, 3)),
            Err(error) => assert!(context < 3 && error.to_string().contains("the context is"), "{error}"),
        }
    }
}

#[test]
fn pieces_of_a_file_go_on_with_a_text_alike() {
    pollster::block_on(async {
        let bytes = read("q8_0");
        let (mut whole, tokenizer) = session(&bytes, Precision::F32);
        let source = bytes.as_slice();
        let index = Index::read(source).await.unwrap();
        let mut told = (0, 0);
        let model = Model::load_from(whole.model().backend(), source, &index, Precision::F32, |done, all| {
            told = (done, all);
        });
        let model = Arc::new(model.await.unwrap());
        assert_eq!(told, (index.bytes(), index.bytes()));
        assert_eq!(model.config(), whole.model().config());
        let mut pieces = Session::new(&model, SessionOptions::new(512)).unwrap();

        // Longer than the parts in which a prompt is added.
        let prompt = tokenizer.encode(&"A kernel is compiled. ".repeat(8), true).unwrap();
        for sampling in [Sampling::greedy(), Sampling::default()] {
            let mut sampler = Sampler::new(sampling);
            let (expected, ended) =
                generate(&mut whole, &tokenizer, &mut sampler, &prompt, 40, |_| true).unwrap();
            let (got, parts) = generated(&mut pieces, &tokenizer, sampling, &prompt, 40).await;
            assert_eq!(got, expected);
            assert_eq!(parts.first(), Some(&Progress::Prompt(128)));
            assert!(matches!(parts.last(), Some(Progress::Ended(_, end)) if *end == ended), "{parts:?}");
            assert_eq!(pieces.len(0), whole.len(0));
            // What the session has already isn't read again.
            pieces.truncate(0, prompt.len() - 1);
            let (again, parts) = generated(&mut pieces, &tokenizer, sampling, &prompt, 40).await;
            assert_eq!(again, expected);
            assert!(
                matches!(parts.first(), Some(Progress::Tokens(tokens)) if tokens.len() == 1),
                "{parts:?}"
            );
            for session in [&mut whole, &mut pieces] {
                session.truncate(0, 0);
            }
        }

        // Up to the context, of which the last token isn't added.
        let (all, parts) = generated(&mut pieces, &tokenizer, Sampling::greedy(), &prompt, 1000).await;
        assert_eq!(prompt.len() + all.len(), 513);
        assert!(matches!(parts.last(), Some(Progress::Ended(_, Ended::Context))), "{parts:?}");
    });
}
