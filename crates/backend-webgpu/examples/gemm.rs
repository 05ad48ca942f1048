//! A matrix product beside its result from the CPU, and the time that the device takes for it.
//!
//! `cargo run --release --example gemm`, with an adapter's selector such as `webgpu:0` in COMPUTE_BACKEND if the
//! best device isn't meant.

mod common;

use std::sync::Arc;
use std::time::Instant;

use backend_api::BackendTranspose::NoTrans;
use backend_api::owned::Buffer;
use backend_api::{BackendResult, ComputeBackend};

const N: usize = 512;
const RUNS: u32 = 20;

fn main() -> BackendResult<()> {
    let backend: Arc<dyn ComputeBackend> = Arc::from(common::select()?);

    // Small whole numbers, so that every order of summation gives the same product.
    let number = |i: usize| (i * 7 % 5) as f32 - 2.0;
    let (a, b): (Vec<f32>, Vec<f32>) = (0..N * N).map(|i| (number(i), number(i + i / N))).unzip();
    let (x, y) = (Buffer::from_slice(&backend, &a)?, Buffer::from_slice(&backend, &b)?);
    let product = Buffer::new::<f32>(&backend, &[N, N])?;
    let multiply =
        || backend.gemm(NoTrans, NoTrans, N, N, N, 1.0, x.ptr(), N, y.ptr(), N, 0.0, product.ptr(), N);
    multiply()?;
    let c: Vec<f32> = product.to_vec()?;
    for (i, j) in [(0, 0), (17, 300), (N - 1, N - 1)] {
        let expected: f32 = (0..N).map(|k| a[i * N + k] * b[k * N + j]).sum();
        println!("C[{i}, {j}] = {}, on the CPU {expected}", c[i * N + j]);
        assert_eq!(c[i * N + j], expected);
    }

    let start = Instant::now();
    for _ in 0..RUNS {
        multiply()?;
    }
    backend.synchronize()?;
    let seconds = start.elapsed().as_secs_f64() / f64::from(RUNS);
    println!("{N}³ in {:.3} ms, {:.1} GFLOP/s", seconds * 1e3, 2e-9 * (N * N * N) as f64 / seconds);
    Ok(())
}
