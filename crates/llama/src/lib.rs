//! Language models from GGUF files over any [`ComputeBackend`](backend_api::ComputeBackend).
//!
//! A small but complete runtime: it reads a GGUF file, uploads its weights as they are quantised there, and lets
//! the model go on with texts, many at a time. It knows the contract alone, never which device is behind it.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use llama::gguf::Gguf;
//! use llama::{Model, Sampler, Sampling, Session, SessionOptions, Tokenizer};
//!
//! let mut registry = backend_api::Registry::new();
//! backend_cpu::register(&mut registry);
//! backend_webgpu::register(&mut registry);
//! let backend = Arc::from(registry.create("auto")?);
//!
//! let bytes = std::fs::read("model.gguf")?;
//! let file = Gguf::parse(&bytes)?;
//! let tokenizer = Tokenizer::from_metadata(file.metadata())?;
//! let model = Arc::new(Model::load(&backend, &file, |_, _| ())?);
//!
//! let mut session = Session::new(&model, SessionOptions::new(2048))?;
//! let prompt = tokenizer.encode("A matrix is", true)?;
//! let mut sampler = Sampler::new(Sampling::default());
//! let (tokens, _) = llama::generate(&mut session, &tokenizer, &mut sampler, &prompt, 100, |_| true)?;
//! println!("{}", tokenizer.decode(&tokens));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From the file up:
//! * [`gguf`]: the file format.
//! * [`Config`]: what the metadata says of the architecture: Llama, Mistral, Ministral 3, Qwen 2 and 3, Gemma 1 to 3,
//!   Phi 3, Granite, SmolLM 3, OLMo 2 and 3, ERNIE 4.5, Seed-OSS, GLM 4, EXAONE 4, Hunyuan, Command R, gpt-oss, and
//!   Mixtral, Qwen and Granite with experts.
//! * [`Model`]: the weights on a device.
//! * [`Session`]: sequences with their caches of keys and values. [`Session::step`] takes the next tokens of
//!   several sequences, many or few of each; [`Session::decode_sampled`] chooses tokens on the device, where they stay
//!   until some are read together.
//! * [`Tokenizer`] and [`ChatTemplate`]: what the file says of texts and chats; [`ChatPrompt`]: what of a chat fits
//!   into a context.
//! * [`Sampler`], [`generate`]: from logits to text. [`Generation`] and the calls that end in `_async` wait without
//!   blocking, as a page has to; [`Model::load_from`] reads a file in pieces.
#![forbid(unsafe_code)]

mod activations;
mod cache;
mod chat;
mod config;
mod error;
mod feed_forward;
mod generate;
pub mod gguf;
mod layer;
mod linear;
mod model;
mod perplexity;
mod precision;
mod rotations;
mod sampler;
mod session;
mod tokenizer;
mod weights;

pub use chat::{ChatPrompt, ChatTemplate, Message};
pub use config::{Architecture, AttentionTemperature, Config, ExpertConfig, RopeConfig, RopeScaling};
pub use error::{Error, Result};
pub use generate::{Ended, Generation, Pace, Progress, TextStream, generate};
pub use model::Model;
pub use perplexity::{Score, perplexity};
pub use precision::Precision;
pub use sampler::{Sampler, Sampling};
pub use session::{Input, Logits, Session, SessionOptions};
pub use tokenizer::Tokenizer;
pub use weights::Filling;
