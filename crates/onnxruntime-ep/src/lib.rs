//! An execution provider for ONNX Runtime: `WebGpuComputeExecutionProvider`.
//!
//! ONNX Runtime loads this library, asks it for devices, and hands it the parts of a model that it takes. The
//! provider is a user of [`backend_api::ComputeBackend`] and of nothing else: a model runs on every device
//! that a backend opens.
//!
//! ```text
//! ONNX Runtime ── abi ──┬── devices   adapters and their backends
//!                       ├── memory    the address space behind its allocator
//!                       ├── claim     which nodes are taken, in which convex subgraphs (support, partition)
//!                       └── plan      a subgraph compiled (fuse) and run, node by node
//!                             ├── capture  runs whose shapes repeat, as graphs of the backend
//!                             ├── profile  events of a run's steps, while ONNX Runtime profiles
//!                             ├── ops      operators in operations of the backend
//!                             └── host     integers, truth values and shapes
//! ```
//!
//! `abi` is the only module with `unsafe`.
#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "ONNX Runtime's API consists of pointers")]
mod abi;
mod capture;
mod claim;
mod devices;
mod error;
mod fuse;
mod half_precision;
mod host;
mod kind;
mod memory;
mod model;
mod numbers;
mod ops;
mod options;
mod partition;
mod plan;
mod profile;
mod support;
mod tensor;
mod workspace;
