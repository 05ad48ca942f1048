//! A second opinion: a backend that makes every call on two others and compares what comes of it.
//!
//! [`register`] adds it to a [`Registry`] under the name `"verify"`, with the names of the two behind a colon:
//! `"verify:webgpu:0,cpu"` is the first WebGPU adapter, compared with the CPU. A runtime that registers it needs
//! no other change, because the environment variable `COMPUTE_BACKEND` takes such a name:
//!
//! ```sh
//! COMPUTE_BACKEND=verify:webgpu,cpu my-runtime
//! ```
//!
//! Results, handles and capabilities are the first backend's. After each operation the outputs of both are read
//! and compared by [`conformance::reference`], with the bounds of the conformance suite; the first call whose
//! results differ by more than rounding explains fails with [`BackendError::Disagreement`], which names the
//! operation, its descriptor, the devices, the worst element, and both values. So does a call that one of the two
//! refuses. Then the second takes the first one's results over, so that each call is judged alone and a caller who
//! goes on hears of the next disagreement rather than of consequences. What a call writes beside its outputs is told
//! once, by the first later call that reads it.
//!
//! With [`DIRECTORY_VARIABLE`] set, the operands of such a call are written to a file.
//!
//! ```
//! use backend_api::{BackendResult, Registry, UnaryOp};
//!
//! fn main() -> BackendResult<()> {
//!     let mut registry = Registry::new();
//!     backend_cpu::register(&mut registry);
//!     backend_verify::register(&mut registry);
//!     let backend = registry.create("verify:cpu,cpu")?;
//!     let x = backend.alloc(4)?;
//!     backend.copy_htod(x, &1f32.to_le_bytes())?;
//!     backend.unary(UnaryOp::Exp, x, x, 1)?;
//!     backend.free(x)
//! }
//! ```
//!
//! # What differs from the first backend alone
//! * Each operation is waited for. A page's main thread can't, so there the backend isn't opened.
//! * New memory holds bytes of 0xFF, which are NaN, on both: what is read before it was written is seen, and is
//!   equal.
//! * A [replay](ComputeBackend::replay) runs as it is, then call by call, each compared, and the two ways must
//!   agree to the bit.
//! * What a backend has beyond the contract is out of reach: `downcast_ref` finds a [`VerifyBackend`].
#![forbid(unsafe_code)]

mod backend;
mod factory;
mod file;
mod graph;
mod mirror;
mod step;

pub use backend::VerifyBackend;
pub use factory::{VerifyFactory, register};
pub use file::DIRECTORY_VARIABLE;

#[cfg(doc)]
use backend_api::{BackendError, ComputeBackend, Registry};
