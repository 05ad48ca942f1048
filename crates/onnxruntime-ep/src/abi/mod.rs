//! The border to ONNX Runtime: the only code of the crate with `unsafe` in it.
//!
//! ONNX Runtime calls functions through tables of pointers and hands them pointers to its objects. Each
//! callback here does three things: it turns pointers into references and values, calls safe code, and turns
//! the result into an `OrtStatus`; [`guard`](status::guard) keeps panics on this side.
//!
//! Every `unsafe` block leans on the same contract, that of `onnxruntime_ep_c_api.h`: pointers that ONNX
//! Runtime passes are valid for the call and of the type declared; output pointers may be written; a table of
//! ours comes back as the `this` of its own functions until its release function is called; functions of
//! `OrtApi` may be called from any thread.

mod allocator;
mod api;
mod compute;
mod factory;
mod graph;
mod log;
mod profiler;
mod provider;
mod status;
mod tables;
mod transfer;
mod value;
