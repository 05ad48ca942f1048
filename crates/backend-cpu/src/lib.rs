//! The compute backend that always works: safe, parallel Rust on the host CPU.
//!
//! [`CpuBackend`] implements every operation of [`ComputeBackend`](backend_api::ComputeBackend); a runtime
//! gets it by the name `"cpu"` after [`register`]. It is the fallback where there is no GPU, and the same
//! numbers in the same order make it a reference.
//!
//! A call's way: the descriptor checks its shapes and names its operands, `access` checks and locks their
//! memory and hands out plain slices, an operation in `ops` computes on them, split over the cores by
//! `parallel`. Calls finish before they return. How work is split depends on sizes only, so results don't
//! depend on the number of cores.
#![forbid(unsafe_code)]

mod access;
mod backend;
mod bound;
mod element;
mod factory;
mod graph;
mod math;
mod memory;
mod ops;
mod parallel;
mod room;
mod strided;

pub use backend::CpuBackend;
pub use factory::{CpuFactory, register};

/// The examples of the README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
