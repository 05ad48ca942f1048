//! The [`ComputeBackend`](backend_api::ComputeBackend) contract as a test suite that runs on any backend.
//!
//! [`cases`] lists every case; [`Case::run`] runs one. A case places each operand in an allocation of its
//! own, well or badly aligned between guard bytes, fills outputs with a NaN pattern, makes one call and then
//! looks at every byte: results against an oracle in f64, everything that the call doesn't name against what
//! was there before.
//!
//! # Bounds
//! Bounds follow from the error model of WGSL, which IEEE hardware meets with room to spare: addition,
//! subtraction and multiplication are within one unit in the last place, division within 2.5, `exp(x)` within
//! `3 + 2|x|`, `log` within 3, `inverseSqrt` within 2; a subnormal operand or result may be taken for zero.
//! Each oracle states in a comment how its bound follows. Results that move or compare numbers are exact.
//!
//! [`cases`] and [`bounded`] run in a browser as well; `bad_input`, which needs 64-bit sizes, `program` and
//! `threads` don't.
#![forbid(unsafe_code)]

mod arena;
#[cfg(not(target_family = "wasm"))]
pub mod bad_input;
pub mod bounded;
mod case;
mod data;
mod device;
mod element;
mod failure;
mod families;
mod float;
mod grid;
pub mod mutate;
mod oracle;
#[cfg(not(target_family = "wasm"))]
pub mod program;
pub mod reference;
mod rng;
mod run;
#[cfg(not(target_family = "wasm"))]
pub mod threads;
mod trial;
mod want;

pub use arena::Arena;
pub use case::{Case, Outcome};
pub use failure::Failure;
pub use families::{
    attention_around, cases, conv_in_small, matmul_along_k, matmul_around, matmul_in_vectors, quant_products,
    rarity,
};
pub use rng::{Rng, hash_of_name};
