//! Language models from GGUF files over any [`ComputeBackend`](backend_api::ComputeBackend).
#![forbid(unsafe_code)]

mod activations;
mod cache;
mod config;
mod error;
pub mod gguf;
mod layer;
mod linear;
mod model;
mod session;
mod weights;

pub use config::{Architecture, Config, RopeConfig, RopeScaling};
pub use error::{Error, Result};
pub use model::Model;
pub use session::{Input, Logits, Session, SessionOptions};
