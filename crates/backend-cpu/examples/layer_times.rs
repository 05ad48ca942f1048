//! How long the parts of one MiniLM-like transformer layer take: `cargo run --release --example layer_times`.
//!
//! Batch 32, 128 tokens, width 384, 12 heads of 32, inner width 1536.

use std::time::Instant;

use backend_api::desc::{
    AttentionDesc, AttentionShape, Bias, BiasAxis, HeadLayout, LayerNormDesc, MatmulDesc, Matrix, SoftmaxDesc,
};
use backend_api::{Activation, BackendResult, BackendTranspose, BinaryOp, ComputeBackend, DType, UnaryOp};
use backend_cpu::CpuBackend;

const TOKENS: usize = 32 * 128;
const WIDTH: usize = 384;
const INNER: usize = 1536;

fn main() -> BackendResult<()> {
    let backend = CpuBackend::new();
    println!("{}", backend.device_info()?.name);
    let [x, y, residual, weight, bias, qkv] =
        [TOKENS * INNER, TOKENS * INNER, TOKENS * WIDTH, INNER * WIDTH, INNER, TOKENS * 3 * WIDTH]
            .map(|n| random(&backend, n));
    let [x, y, residual, weight, bias, qkv] = [x?, y?, residual?, weight?, bias?, qkv?];

    for (n, k, activation) in [
        (3 * WIDTH, WIDTH, Activation::Identity),
        (WIDTH, WIDTH, Activation::Identity),
        (INNER, WIDTH, Activation::Gelu),
        (INNER, WIDTH, Activation::Identity),
        (WIDTH, INNER, Activation::Identity),
    ] {
        let out = if n == 3 * WIDTH { qkv } else { y };
        let weight = if n == 3 * WIDTH { random(&backend, n * k)? } else { weight };
        let desc = linear(TOKENS, n, k, [x, weight, bias, out]).with_activation(activation);
        let seconds = best(|| backend.matmul(&desc))?;
        let flops = 2.0 * (TOKENS * n * k) as f64;
        println!(
            "linear {k:>4} → {n:>4} {activation:?}: {:.2} ms, {:.0} GFLOP/s",
            seconds * 1e3,
            flops / seconds / 1e9
        );
    }
    for (m, n, k) in [(1, INNER, WIDTH), (4, INNER, WIDTH), (32, INNER, WIDTH)] {
        let desc = linear(m, n, k, [x, weight, bias, y]);
        let seconds = best(|| backend.matmul(&desc))?;
        let flops = 2.0 * (m * n * k) as f64;
        println!("linear of {m:>2} rows: {:.3} ms, {:.0} GFLOP/s", seconds * 1e3, flops / seconds / 1e9);
    }

    let shape = AttentionShape { batch: 32, heads: 12, seq_q: 128, seq_kv: 128, head_dim: 32 };
    let layout =
        |offset: usize, width: usize| HeadLayout { offset, batch: 128 * width, head: 32, token: width };
    let attention = AttentionDesc::new(DType::F32, qkv, qkv, qkv, y, shape)
        .with_q_layout(layout(0, 3 * WIDTH))
        .with_k_layout(layout(WIDTH, 3 * WIDTH))
        .with_v_layout(layout(2 * WIDTH, 3 * WIDTH))
        .with_o_layout(layout(0, WIDTH));
    report("attention", || backend.attention_ext(&attention))?;

    let mut norm = LayerNormDesc::new(DType::F32, x, y, TOKENS, WIDTH);
    norm.residual = Some(residual);
    norm.weight = Some(bias);
    norm.bias = Some(bias);
    report("layer_norm with residual", || backend.layer_norm(&norm))?;
    report("gelu", || backend.unary(UnaryOp::Gelu, x, y, TOKENS * INNER))?;
    report("exp", || backend.unary(UnaryOp::Exp, x, y, TOKENS * INNER))?;
    report("add", || backend.binary(BinaryOp::Add, x, y, y, TOKENS * INNER))?;
    report("softmax", || backend.softmax(&SoftmaxDesc::rows(DType::F32, x, y, TOKENS * 12, 128)))
}

/// Pointers are x, weight (stored as PyTorch does, n×k), bias and y.
fn linear(m: usize, n: usize, k: usize, [x, weight, bias, y]: [u64; 4]) -> MatmulDesc {
    let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
    MatmulDesc::new(m, n, k, matrix(x, k), matrix(weight, k), matrix(y, n))
        .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans)
        .with_bias(Bias { ptr: bias, axis: BiasAxis::Column })
}

/// `n` numbers spread over [−3, 3).
fn random(backend: &CpuBackend, n: usize) -> BackendResult<u64> {
    let numbers: Vec<f32> = (0..n as u32)
        .map(|i| (i.wrapping_mul(0x9E37_79B9) >> 8) as f32 / (1 << 24) as f32 * 6.0 - 3.0)
        .collect();
    let ptr = backend.alloc(n * 4)?;
    backend.copy_htod(ptr, bytemuck::cast_slice(&numbers))?;
    Ok(ptr)
}

fn report(name: &str, call: impl Fn() -> BackendResult<()>) -> BackendResult<()> {
    println!("{name}: {:.2} ms", best(call)? * 1e3);
    Ok(())
}

/// The shortest of the runs in half a second.
fn best(call: impl Fn() -> BackendResult<()>) -> BackendResult<f64> {
    call()?;
    let (start, mut best) = (Instant::now(), f64::INFINITY);
    while start.elapsed().as_secs_f64() < 0.5 {
        let start = Instant::now();
        call()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}
