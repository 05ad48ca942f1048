//! A compute backend for ML runtimes over wgpu: BLAS and DNN operations as WGSL kernels on Vulkan, Metal,
//! DirectX 12, OpenGL and in browsers.
//!
//! [`WebGpuBackend`] implements [`ComputeBackend`](backend_api::ComputeBackend). A runtime usually gets it by
//! name:
//!
//! ```no_run
//! use backend_api::Registry;
//!
//! let mut registry = Registry::new();
//! backend_webgpu::register(&mut registry);
//! let backend = registry.create("webgpu")?;
//! let x = backend.alloc(4 * 1024)?;
//! backend.unary(backend_api::UnaryOp::Tanh, x, x, 1024)?;
//! # Ok::<(), backend_api::BackendError>(())
//! ```
//!
//! # The data's way
//! Each call goes one way: `compute` (the contract) → `ops` (check the descriptor, choose a kernel) →
//! `context` (the opened device) → `recorder` (bind, record, submit) → the queue. Beside them are `device`
//! (which adapter, and whether it still works), `memory` (handles and the pool), `kernels` (WGSL sources and
//! compiled pipelines) and `transfer` (uploads and read-backs).
#![deny(unsafe_code)]
#![cfg_attr(
    not(feature = "test-hooks"),
    allow(unreachable_pub, reason = "what suites look at of kernels is public to them alone")
)]
#![cfg_attr(
    target_family = "wasm",
    allow(clippy::arc_with_non_send_sync, reason = "what threads share on every other target")
)]

mod backend;
#[cfg(not(target_family = "wasm"))]
mod cache;
mod capture;
mod compute;
mod context;
#[cfg(not(target_family = "wasm"))]
mod custom;
#[cfg(not(target_family = "wasm"))]
mod custom_api;
mod device;
mod factory;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod kernel_choice;
mod kernels;
#[cfg(all(test, not(target_family = "wasm")))]
mod layering;
mod memory;
mod opened;
mod ops;
#[cfg(feature = "count-out-of-bounds")]
mod out_of_bounds;
mod recorder;
mod sharing;
mod sync;
#[cfg(any(test, feature = "test-hooks"))]
mod test_hooks;
#[cfg(test)]
mod tests;
mod transfer;
#[cfg(not(target_family = "wasm"))]
mod tune;
mod tuning;
mod unchecked;
#[cfg(not(target_family = "wasm"))]
mod uniformity;
mod warm_up;

/// Every variant of every kernel and what its text is composed of, for the suites that look at them without a
/// device.
#[cfg(feature = "test-hooks")]
pub mod variants {
    pub use crate::kernels::{
        Field, KernelSource, Lib, MAX_CONSTANTS, PADDING, Requirements, Target, Unrolled, Values, Variant,
        WorkgroupSize, compose,
    };
    pub use crate::ops::all_variants;
    pub use crate::ops::{attention_source, conv_source, matmul_source};
    #[cfg(not(target_family = "wasm"))]
    pub use crate::uniformity::{Finding, NonUniform, check as check_uniformity};
}

pub use backend::WebGpuBackend;
#[cfg(not(target_family = "wasm"))]
pub use custom::{
    BindingAccess, BindingInfo, Kernel, KernelDesc, KernelLimits, KernelReport, MAX_PARAM_BYTES,
    MAX_STORAGE_BINDINGS, ParamField, ParamSpace, ParamsInfo, validate, validate_kernel,
};
#[cfg(not(target_family = "wasm"))]
pub use custom_api::{
    BuiltIn, Clock, Comparison, CooperativeMatrix, DeviceSpecs, Expected, Profile, ProfileOptions,
};
pub use factory::{WebGpuFactory, register};

/// The examples of the README, as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
