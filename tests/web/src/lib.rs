//! What runs in a page: the conformance suite, and what only a browser can get wrong. On other targets there
//! is nothing here.
//!
//! Each export returns its failures, one line each; an empty list is success. Progress goes to the console,
//! one line for each test.
#![cfg(target_family = "wasm")]
#![allow(missing_docs, reason = "wasm-bindgen's own items")]

mod bench;
mod conformance_suite;
mod faults;
mod kernels;
mod language_models;
mod replays;

use backend_api::{BackendResult, Registry, Selection};
use js_sys::Uint8Array;
use wasm_bindgen::JsValue;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console)]
    fn log(line: &str);
}

#[wasm_bindgen(start)]
fn start() {
    console_error_panic_hook::set_once();
}

/// A backend by its name in a registry.
async fn open(name: &str) -> BackendResult<Selection> {
    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_webgpu::register(&mut registry);
    registry.select_async(name).await
}

/// One case in `every` of each operation; if `filter` isn't empty, of those whose path contains all words of
/// one of its parts, which are separated by commas. Of the operations, those numbered `shard`, `shard + shards`, ….
#[wasm_bindgen]
pub async fn conformance(
    backend: String,
    every: usize,
    filter: String,
    shard: usize,
    shards: usize,
) -> Vec<String> {
    conformance_suite::run(&backend, every, &filter, shard, shards).await
}

/// Blocking calls, a lost device and its successor.
#[wasm_bindgen]
pub async fn faults() -> Vec<String> {
    faults::run().await
}

/// What replays cost beside recording.
#[wasm_bindgen]
pub async fn replays() -> Vec<String> {
    replays::run().await
}

/// What a page sees where the browser has no WebGPU.
#[wasm_bindgen]
pub async fn without_webgpu() -> Vec<String> {
    faults::without_webgpu().await
}

/// Every kernel that a page may be given.
#[wasm_bindgen]
pub fn kernels() -> Vec<kernels::Kernel> {
    kernels::all()
}

/// Logits of a language model, given as a GGUF file: of what follows the first `prompt` tokens, and each one more.
#[wasm_bindgen]
pub async fn logits(
    backend: String,
    file: Uint8Array,
    tokens: Vec<u32>,
    prompt: usize,
) -> Result<Vec<f32>, JsValue> {
    let logits = language_models::logits(&backend, &file, &tokens, prompt).await;
    logits.map_err(|error| JsValue::from_str(&error.to_string()))
}

/// Milliseconds of each of `rounds` products of n×n f32 matrices, read-back of one number included.
#[wasm_bindgen]
pub async fn time_matmul(n: usize, rounds: usize) -> Result<Vec<f64>, JsValue> {
    bench::matmul(n, rounds).await.map_err(|error| JsValue::from_str(&error.to_string()))
}
