//! Attention of a token over a cache of keys and values, four query heads to each of two cached heads, as a language
//! model decodes.
//!
//! `cargo run --release --example attention`, with an adapter's selector such as `webgpu:0` in COMPUTE_BACKEND if
//! the best device isn't meant.

mod common;

use std::sync::Arc;

use backend_api::desc::{AttentionDesc, AttentionShape};
use backend_api::owned::Buffer;
use backend_api::{BackendResult, ComputeBackend, DType};

const HEADS: usize = 8;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 64;
/// Keys that the cache has room for.
const CAPACITY: usize = 128;

fn main() -> BackendResult<()> {
    let backend: Arc<dyn ComputeBackend> = Arc::from(common::select()?);

    // Every value of key t is t, and all scores are equal: the output is the mean of the values seen.
    let values: Vec<f32> =
        (0..KV_HEADS * CAPACITY * HEAD_DIM).map(|i| (i / HEAD_DIM % CAPACITY) as f32).collect();
    let q = Buffer::from_slice(&backend, &[1.0_f32; HEADS * HEAD_DIM])?;
    let k = Buffer::zeroed(&backend, DType::F32, &[KV_HEADS, CAPACITY, HEAD_DIM])?;
    let v = Buffer::from_slice(&backend, &values)?;
    let o = Buffer::new::<f32>(&backend, &[HEADS, HEAD_DIM])?;
    let length = Buffer::new::<u32>(&backend, &[1])?;

    let shape = AttentionShape { batch: 1, heads: HEADS, seq_q: 1, seq_kv: CAPACITY, head_dim: HEAD_DIM };
    let desc = AttentionDesc::new(DType::F32, q.ptr(), k.ptr(), v.ptr(), o.ptr(), shape)
        .with_kv_heads(KV_HEADS)
        .with_key_lengths(length.ptr());
    for keys in [1, 5, 100] {
        length.upload(&[keys as u32])?;
        backend.attention_ext(&desc)?;
        let output: Vec<f32> = o.to_vec()?;
        let mean = (keys - 1) as f32 / 2.0;
        println!("over {keys} keys: {}, the mean of their values is {mean}", output[0]);
        assert!(output.iter().all(|x| (x - mean).abs() <= 1e-4 * mean.max(1.0)));
    }
    Ok(())
}
