//! A page's module with nothing but the backend: `multiply` of two square matrices on the browser's WebGPU.
//!
//! `cargo xtask web` builds it as the measure of the backend's size.
#![cfg(target_family = "wasm")]
#![allow(missing_docs, reason = "wasm-bindgen's own items")]

use backend_api::BackendTranspose::NoTrans;
use backend_api::{BackendResult, Registry};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

/// The product of two n×n matrices, row-major.
#[wasm_bindgen]
pub async fn multiply(n: usize, a: Vec<f32>, b: Vec<f32>) -> Result<Vec<f32>, JsError> {
    Ok(product(n, &a, &b).await?)
}

async fn product(n: usize, a: &[f32], b: &[f32]) -> BackendResult<Vec<f32>> {
    let mut registry = Registry::new();
    backend_webgpu::register(&mut registry);
    let backend = registry.select_async("webgpu").await?.backend;

    let bytes = 4 * n * n;
    let (pa, pb, pc) = (backend.alloc(bytes)?, backend.alloc(bytes)?, backend.alloc(bytes)?);
    backend.copy_htod(pa, bytemuck::cast_slice(a))?;
    backend.copy_htod(pb, bytemuck::cast_slice(b))?;
    backend.gemm(NoTrans, NoTrans, n, n, n, 1.0, pa, n, pb, n, 0.0, pc, n)?;
    let mut c = vec![0.0f32; n * n];
    backend.copy_dtoh_async(bytemuck::cast_slice_mut(&mut c), pc).await?;
    Ok(c)
}
