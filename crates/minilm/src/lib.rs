//! Sentence embeddings with all-MiniLM-L6-v2 over any [`ComputeBackend`](backend_api::ComputeBackend).
//!
//! A small but complete ML runtime: it loads a BERT checkpoint onto a device, runs the encoder there and
//! turns sentences into vectors whose dot product is their cosine similarity. It knows the contract alone,
//! never which device is behind it.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! let mut registry = backend_api::Registry::new();
//! backend_cpu::register(&mut registry);
//! backend_webgpu::register(&mut registry);
//!
//! let backend = Arc::from(registry.create("auto")?);
//! let encoder = minilm::ModelDir::locate(None)?.load(&backend, backend_api::DType::F32, |_, _| ())?;
//! let embeddings = encoder.encode(&["a cat sat on the mat", "the kitten is on the rug"], |_| ())?;
//! for vector in embeddings.iter() {
//!     println!("{vector:?}");
//! }
//! # Ok::<(), minilm::Error>(())
//! ```
//!
//! From the device up:
//! * [`Buffer`]: device memory that frees itself.
//! * [`Model`]: weights on the device and the forward pass, from a [`Batch`] of token ids to sentence
//!   vectors.
//! * [`Encoder`]: tokenizes texts, batches them by length, collects their [`Embeddings`] in the order given.
//! * [`split`]: cuts a document into passages.
//! * [`ModelDir`]: the one place that reads files.
#![forbid(unsafe_code)]

mod activations;
mod batch;
mod captured;
mod checkpoint;
mod config;
mod embeddings;
mod encoder;
mod encoder_layer;
mod error;
mod layers;
mod model;
mod model_dir;
mod passages;
mod token_embeddings;
mod tokenizer;

pub use backend_api::owned::Buffer;
pub use batch::{Batch, plan_batches};
pub use captured::CapturedPass;
pub use config::Config;
pub use embeddings::Embeddings;
pub use encoder::{DEFAULT_BATCH_SIZE, Encoder};
pub use error::{Error, Result};
pub use model::Model;
pub use model_dir::{MODEL_VARIABLE, ModelDir};
pub use passages::{MAX_WORDS, Passage, split};
pub use tokenizer::{MAX_TOKENS, Tokenizer};
