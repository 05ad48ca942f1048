//! The contract of a compute backend for ML runtimes.
//!
//! A runtime holds a [`Box<dyn ComputeBackend>`](ComputeBackend), allocates device memory as opaque `u64`
//! handles and calls BLAS- and DNN-like operations on them. Which backend it holds is chosen by name through
//! a [`Registry`]: `"webgpu"`, `"webgpu:1"`, `"cpu"`, `"auto"`.
//!
//! * [`ComputeBackend`]: the operations. Fifteen of them are positional, in the manner of BLAS; the others
//!   take one descriptor from [`desc`].
//! * [`BackendError`]: every way a call can fail, with fields rather than prose.
//! * [`operand`]: the bytes that a call reads and writes, checked the same way by every backend.
//! * [`calls`]: operations as data, which can be kept and called again.
//! * [`handles`]: the table behind a backend's handles.
//! * [`Registry`]: backends by name, and the choice of the best one.
//!
//! The crate has no GPU code and no `unsafe`.
#![forbid(unsafe_code)]

mod backend;
mod bound;
pub mod calls;
pub mod desc;
mod device;
mod dtype;
mod error;
mod graphs;
pub mod handles;
mod maybe_send;
pub mod operand;
mod ops;
pub mod random;
mod registry;
mod size;

pub use backend::ComputeBackend;
pub use bound::{MAX_SECONDS, require_bounded};
pub use device::{Capabilities, DeviceInfo, DeviceKind, MemoryStats};
pub use dtype::{DType, round_to_odd};
pub use error::{BackendError, BackendResult, Diagnostic, ErrorKind};
pub use graphs::GraphTable;
pub use maybe_send::{BackendFuture, MaybeSend, MaybeSync, Operation};
pub use ops::{Activation, BackendTranspose, BinaryOp, CompareOp, MathMode, ReduceOp, ScatterOp, UnaryOp};
pub use registry::{BackendFactory, BackendPreference, OVERRIDE_VARIABLE, Registry, Selection};
pub use size::{checked_add, checked_product};
