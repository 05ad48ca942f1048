//! The contract of a compute backend for ML runtimes.
//!
//! A runtime holds a [`dyn ComputeBackend`](ComputeBackend) in an `Arc` (a registry gives a `Box`, which becomes
//! one), allocates device memory as opaque `u64` handles and calls BLAS- and DNN-like operations on them. Which
//! backend it holds is chosen by name through a [`Registry`]: `"webgpu"`, `"webgpu:1"`, `"cpu"`, `"auto"`.
//!
//! * [`ComputeBackend`]: the operations. Those of BLAS and DNN libraries have positional forms; all
//!   take a descriptor from [`desc`].
//! * [`Command`]: an operation with its descriptor, which is what a backend implements
//!   ([`ComputeBackend::execute`]).
//! * [`quant`]: quantised matrices, their layout in device memory, and conversions from and to files' formats.
//! * [`kv`]: formats of attention's keys and values, and their blocks on the host.
//! * [`BackendError`]: every way a call can fail, with fields rather than prose.
//! * [`support`]: what backends are made with, such as the check of a call's operands and the table of handles.
//! * [`owned::Buffer`]: a handle that is freed when it is dropped.
//! * [`Registry`]: backends by name, and the choice of the best one.
//!
//! The crate has no GPU code and no `unsafe`.
#![forbid(unsafe_code)]

mod backend;
mod bound;
mod calls;
mod command;
pub mod desc;
mod device;
mod diagnostic;
mod disagreement;
mod dtype;
mod error;
mod forward;
mod graphs;
mod handle_code;
mod handles;
pub mod kv;
mod maybe_send;
mod operand;
mod ops;
pub mod owned;
pub mod quant;
pub mod random;
mod rebind;
mod registry;
mod shape_bound;
mod size;
pub mod support;

pub use backend::ComputeBackend;
pub use command::Command;
pub use device::{Capabilities, DeviceInfo, DeviceKind, MemoryStats};
pub use diagnostic::{Diagnostic, DiagnosticKind, SourcePlace};
pub use disagreement::{Difference, Disagreement};
pub use dtype::DType;
pub use error::{BackendError, BackendResult, ErrorKind};
pub use maybe_send::{BackendFuture, MaybeSend, MaybeSync, Operation};
pub use ops::{
    Activation, BackendTranspose, BinaryOp, CompareOp, Gate, MathMode, ReduceOp, ScatterOp, UnaryOp,
};
pub use registry::{
    BackendFactory, BackendPreference, OVERRIDE_VARIABLE, Registry, Selection, override_name,
};
pub use shape_bound::Bound;
pub(crate) use size::{checked_add, checked_product};

/// The examples of the README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
