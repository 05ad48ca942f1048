//! Spot checks of each family and of what is this backend's own; crates/conformance has the grids and the
//! oracles.
//!
//! What runs operations is tested here: a unit test that does would have the whole crate compiled and optimised twice.

mod infinities;
mod parameters;
mod registry;

use backend_api::desc::{
    AttentionDesc, AttentionMask, AttentionShape, Bias, BiasAxis, BinaryDesc, CopyDesc, ExpertMatmulDesc,
    GatherDesc, HeadLayout, IndexShape, LayerNormDesc, MatmulDesc, Matrix, QuantMatmulDesc, QuantMatrix,
    QuantizeRowsDesc, RmsNormDesc, RopeDesc, RopeShape, RopeStyle, RopeTables, SoftmaxDesc, TensorDesc,
};
use backend_api::kv::KvFormat;
use backend_api::quant::QuantFormat;
use backend_api::{
    Activation, BackendTranspose, BinaryOp, ComputeBackend, DType, ErrorKind, ReduceOp, UnaryOp,
};
use backend_cpu::CpuBackend;
use bytemuck::{Pod, cast_slice, cast_slice_mut};
use half::f16;
use rayon::prelude::*;

const F32: DType = DType::F32;

fn upload<T: Pod>(backend: &CpuBackend, values: &[T]) -> u64 {
    let ptr = backend.alloc(size_of_val(values)).unwrap();
    backend.copy_htod(ptr, cast_slice(values)).unwrap();
    ptr
}

fn download<T: Pod>(backend: &CpuBackend, ptr: u64, n: usize) -> Vec<T> {
    let mut values = vec![T::zeroed(); n];
    backend.copy_dtoh(cast_slice_mut(&mut values), ptr).unwrap();
    values
}

/// Small integers, whose products and sums are exact.
fn integers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7 % 11) as f32 - 5.0).collect()
}

#[test]
fn every_call_needs_init() {
    let mut backend = CpuBackend::default();
    assert!(!backend.is_initialized());
    let not_initialized = Err(ErrorKind::NotInitialized);
    assert_eq!(backend.alloc(4).map_err(|e| e.kind()), not_initialized);
    assert_eq!(backend.synchronize().map_err(|e| e.kind()), not_initialized.map(|_: u64| ()));
    assert_eq!(backend.memory_stats().handles, 0);
    backend.init().unwrap();
    let ptr = backend.alloc(4).unwrap();
    backend.init().unwrap();
    backend.free(ptr).unwrap();
}

#[test]
fn large_products_are_exact_in_every_layout() {
    let backend = CpuBackend::new();
    // Wide, tall and deep enough to be divided by rows and columns.
    for (m, n, k) in [(600, 70, 300), (3, 1500, 1024), (1, 5000, 900), (300, 300, 60)] {
        let (a, b) = (integers(m * k), integers(k * n));
        let want: Vec<f32> = (0..m * n)
            .into_par_iter()
            .map(|at| (0..k).map(|p| a[at / n * k + p] * b[p * n + at % n]).sum::<f32>() + 1.0)
            .collect();
        let transposed = |x: &[f32], rows: usize, columns: usize| -> Vec<f32> {
            (0..x.len()).map(|i| x[i % rows * columns + i / rows]).collect()
        };
        for trans in [BackendTranspose::NoTrans, BackendTranspose::Trans] {
            let is = trans.is_transposed();
            let a = upload(&backend, &if is { transposed(&a, m, k) } else { a.clone() });
            let b = upload(&backend, &if is { transposed(&b, k, n) } else { b.clone() });
            let c = upload(&backend, &vec![2.0f32; m * n]);
            let (lda, ldb) = if is { (m, k) } else { (k, n) };
            backend.gemm(trans, trans, m, n, k, 1.0, a, lda, b, ldb, 0.5, c, n).unwrap();
            assert_eq!(download::<f32>(&backend, c, m * n), want, "{m}x{n}x{k} {trans:?}");
        }
    }
}

#[test]
fn f16_products_have_bias_activation_and_padding() {
    let backend = CpuBackend::new();
    let halves = |x: &[f32]| x.iter().map(|&x| f16::from_f32(x)).collect::<Vec<_>>();
    let a = upload(&backend, &halves(&[1.0, 2.0, 3.0, 4.0]));
    let b = upload(&backend, &halves(&[1.0, -1.0, 0.5, -2.0]));
    let bias = upload(&backend, &halves(&[0.0, 6.0]));
    let c = upload(&backend, &halves(&[f32::NAN; 6]));
    let matrix = |ptr, ld| Matrix::new(ptr, DType::F16, ld);
    let desc = MatmulDesc::new(2, 2, 2, matrix(a, 2), matrix(b, 2), matrix(c, 3))
        .with_bias(Bias { ptr: bias, axis: BiasAxis::Column })
        .with_activation(Activation::Relu);
    backend.matmul(&desc).unwrap();
    let c = download::<f16>(&backend, c, 6);
    assert_eq!([c[0], c[1], c[3], c[4]].map(f16::to_f32), [2.0, 1.0, 5.0, 0.0]);
    assert!(c[2].is_nan() && c[5].is_nan());
}

#[test]
fn interleaved_batches_keep_apart() {
    let backend = CpuBackend::new();
    let a = upload(&backend, &[1.0f32, 2.0, 3.0, 4.0]);
    let c = upload(&backend, &[0.0f32; 4]);
    let n = BackendTranspose::NoTrans;
    // Row i of matrix b is at 2·i + b.
    backend.batched_gemm(n, n, 2, 1, 1, 1.0, a, 1, 2, a, 1, 2, 0.0, c, 2, 1, 2).unwrap();
    assert_eq!(download::<f32>(&backend, c, 4), [1.0, 9.0, 2.0, 12.0]);
}

#[test]
fn convolution_of_a_padded_image() {
    let backend = CpuBackend::new();
    let input = upload(&backend, &(1..=9).map(|i| i as f32).collect::<Vec<_>>());
    let filter = upload(&backend, &[1.0f32; 9]);
    let output = upload(&backend, &[f32::NAN; 4]);
    backend
        .conv2d_forward(input, &[1, 1, 3, 3], filter, &[1, 1, 3, 3], output, &[1, 1, 2, 2], &[2, 2], &[1, 1])
        .unwrap();
    assert_eq!(download::<f32>(&backend, output, 4), [12.0, 16.0, 24.0, 28.0]);
}

#[test]
fn hidden_keys_may_hold_anything() {
    let backend = CpuBackend::new();
    let q = upload(&backend, &[1.0f32, 1.0]);
    let k = upload(&backend, &[0.0f32, 0.0, f32::NAN]);
    let v = upload(&backend, &[2.0f32, 4.0, f32::INFINITY]);
    let lengths = upload(&backend, &[2u32]);
    let mask = upload(&backend, &[0.0, 0.0, f32::NEG_INFINITY]);
    let o = upload(&backend, &[f32::NAN; 2]);
    let desc = AttentionDesc::new(
        F32,
        q,
        k,
        v,
        o,
        AttentionShape { batch: 1, heads: 1, seq_q: 2, seq_kv: 3, head_dim: 1 },
    );
    let shared_mask = AttentionMask { ptr: mask, batch_stride: 0, head_stride: 0, query_stride: 0 };
    let (mut by_length, mut by_mask) = (desc, desc);
    by_length.key_lengths = Some(lengths);
    by_mask.mask = Some(shared_mask);
    for desc in [by_length, by_mask] {
        backend.attention_ext(&desc).unwrap();
        assert_eq!(download::<f32>(&backend, o, 2), [3.0, 3.0]);
    }
    // Three queries and two keys, causal: the first query sees nothing.
    let q = upload(&backend, &[1.0f32; 3]);
    let o = upload(&backend, &[f32::NAN; 3]);
    backend.attention(q, k, v, o, 1, 1, 3, 2, 1, 1.0, true).unwrap();
    assert_eq!(download::<f32>(&backend, o, 3), [0.0, 2.0, 3.0]);
}

/// Attention over more keys than a block of scores has: the softmax of each query goes on from block to block.
#[test]
fn attention_over_blocks_of_keys() {
    let backend = CpuBackend::new();
    let (seq_q, seq_kv) = (3, 150_001);
    // The largest score is in the last block for the first query, in the first for the second.
    let key = |j: usize| (j as f32 / seq_kv as f32 + (j * 7 % 13) as f32 / 13.0) * 4.0;
    let value = |j: usize| (j * 5 % 17) as f32 - 3.0 + 10.0 * (j / 60_000) as f32;
    let queries = [1.0f32, -2.0, 0.0];
    let q = upload(&backend, &queries);
    let k = upload(&backend, &(0..seq_kv).map(key).collect::<Vec<_>>());
    let values: Vec<f32> = (0..seq_kv).map(value).collect();
    let v = upload(&backend, &values);
    let [o, lse] = [(); 2].map(|()| upload(&backend, &[f32::NAN; 3]));
    let shape = AttentionShape { batch: 1, heads: 1, seq_q, seq_kv, head_dim: 1 };
    let plain = AttentionDesc::new(F32, q, k, v, o, shape).with_scale(1.0).with_lse(lse);
    for desc in [plain, plain.with_window(100_000)] {
        backend.attention_ext(&desc).unwrap();
        let (found, logarithms) = (download::<f32>(&backend, o, 3), download::<f32>(&backend, lse, 3));
        for (query, &x) in queries.iter().enumerate() {
            let weight = |j: usize| (f64::from(x) * f64::from(key(j))).exp();
            let seen = desc.visible(query, seq_kv);
            let total: f64 = seen.clone().map(weight).sum();
            let mean = seen.map(|j| weight(j) * f64::from(value(j))).sum::<f64>() / total;
            // Sums of f32 of up to 150,001 terms in blocks, and exponentials with an error of a few units.
            let (got, log) = (f64::from(found[query]), f64::from(logarithms[query]));
            assert!((got - mean).abs() < 2e-4 * mean.abs(), "query {query}: {got}, not {mean}");
            assert!((log - total.ln()).abs() < 1e-5 * total.ln().abs(), "{log}, not {}", total.ln());
        }
    }
    // A value that isn't finite stays so when a later block has larger scores.
    let mut infinite = values;
    infinite[1] = f32::INFINITY;
    backend.copy_htod(v, cast_slice(&infinite)).unwrap();
    backend.attention_ext(&plain).unwrap();
    assert_eq!(download::<f32>(&backend, o, 3), [f32::INFINITY; 3]);
}

/// A stride of 0 lets a few bytes be more keys than there is memory for scores.
#[test]
fn attention_takes_memory_for_the_keys_that_are_seen() {
    let backend = CpuBackend::new();
    let x = upload(&backend, &[1.5f32]);
    let o = upload(&backend, &[f32::NAN]);
    let shape = AttentionShape { batch: 1, heads: 1, seq_q: 1, seq_kv: 1 << 38, head_dim: 1 };
    let one = HeadLayout { offset: 0, batch: 0, head: 0, token: 0 };
    let desc = AttentionDesc::new(F32, x, x, x, o, shape).with_k_layout(one).with_v_layout(one);
    backend.attention_ext(&desc.with_window(4)).unwrap();
    assert_eq!(download::<f32>(&backend, o, 1), [1.5]);
}

#[test]
fn long_reductions_of_lines_and_columns() {
    let backend = CpuBackend::new();
    let n = 300_000;
    let input = upload(&backend, &vec![0.1f32; n]);
    let output = upload(&backend, &[0.0f32; 3]);
    let exact = (f64::from(0.1f32) * n as f64) as f32;
    backend.reduce(ReduceOp::Sum, input, output, &[n], 0).unwrap();
    assert_eq!(download::<f32>(&backend, output, 1), [exact]);
    backend.reduce(ReduceOp::Sum, input, output, &[n / 3, 3], 0).unwrap();
    assert_eq!(download::<f32>(&backend, output, 3), [(f64::from(0.1f32) * (n / 3) as f64) as f32; 3]);
    backend.reduce(ReduceOp::Max, input, output, &[0, 3], 0).unwrap();
    assert_eq!(download::<f32>(&backend, output, 3), [f32::NEG_INFINITY; 3]);
}

#[test]
fn element_wise_in_place_strided_and_broadcast() {
    let backend = CpuBackend::new();
    let x = upload(&backend, &[-1.0f32, 2.0, -3.0, 4.0]);
    backend.unary(UnaryOp::Relu, x, x, 4).unwrap();
    assert_eq!(download::<f32>(&backend, x, 4), [0.0, 2.0, 0.0, 4.0]);
    backend.binary(BinaryOp::Sub, x, x, x, 4).unwrap();
    assert_eq!(download::<f32>(&backend, x, 4), [0.0; 4]);

    let a = upload(&backend, &[1.0f32, 2.0, 3.0, 4.0]);
    let b = upload(&backend, &[10.0f32, 20.0]);
    let transposed = TensorDesc::strided(a, F32, &[2, 2], &[1, 2]);
    let (row, output) = (TensorDesc::packed(b, F32, &[2]), TensorDesc::packed(x, F32, &[2, 2]));
    backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, transposed, row, output)).unwrap();
    assert_eq!(download::<f32>(&backend, x, 4), [11.0, 23.0, 12.0, 24.0]);
}

#[test]
fn copies_convert_and_constants_fill() {
    let backend = CpuBackend::new();
    let src = upload(&backend, &[1.9f32, -1.9, f32::NAN, 1e20]);
    let dst = backend.alloc(16).unwrap();
    let tensor = |ptr, dtype| TensorDesc::packed(ptr, dtype, &[4]);
    backend.copy(&CopyDesc::new(tensor(src, F32), tensor(dst, DType::I32))).unwrap();
    assert_eq!(download::<i32>(&backend, dst, 4), [1, -1, 0, i32::MAX]);
    backend.fill(dst, DType::U32, 3, -7.0).unwrap();
    assert_eq!(download::<u32>(&backend, dst, 4), [0, 0, 0, i32::MAX as u32]);
}

#[test]
fn rows_are_normalised_and_gathered() {
    let backend = CpuBackend::new();
    let x = upload(&backend, &[1.0f32, 3.0, 5.0, 5.0]);
    let y = upload(&backend, &[f32::NAN; 4]);
    let mut norm = LayerNormDesc::new(F32, x, y, 2, 2);
    norm.eps = 0.0;
    norm.rows = 1;
    backend.layer_norm(&norm).unwrap();
    assert_eq!(download::<f32>(&backend, y, 2), [-1.0, 1.0]);
    let mut norm = RmsNormDesc::new(F32, x, x, 2, 2);
    norm.eps = 0.0;
    norm.residual = Some(x);
    backend.rms_norm(&norm).unwrap();
    assert_eq!(download::<f32>(&backend, x, 4)[2..], [1.0, 1.0]);
    let zeros = upload(&backend, &[0.0f32; 4]);
    backend.softmax(&SoftmaxDesc::along(F32, zeros, zeros, &[2, 2], 0).unwrap()).unwrap();
    assert_eq!(download::<f32>(&backend, zeros, 4), [0.5; 4]);

    let table = upload(&backend, &[1.0f32, 2.0, 3.0, 4.0]);
    let indices = upload(&backend, &[1i32, -1, 2]);
    let rows = upload(&backend, &[f32::NAN; 6]);
    backend
        .gather(&GatherDesc::new(F32, table, indices, rows, IndexShape { rows: 2, columns: 2, count: 3 }))
        .unwrap();
    assert_eq!(download::<f32>(&backend, rows, 6), [3.0, 4.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn rotation_by_a_quarter_turn() {
    let backend = CpuBackend::new();
    let x = upload(&backend, &[1.0f32, 2.0, 3.0]);
    let (cos, sin) = (upload(&backend, &[0.0f32]), upload(&backend, &[1.0f32]));
    let mut desc = RopeDesc::new(
        F32,
        x,
        x,
        RopeTables { cos, sin, max_position: 1 },
        RopeShape { batch: 1, heads: 1, seq: 1, head_dim: 3 },
        RopeStyle::Half,
    );
    desc.rotary_dim = 2;
    backend.rope(&desc).unwrap();
    assert_eq!(download::<f32>(&backend, x, 3), [-2.0, 1.0, 3.0]);
}

/// Tasks of a runtime's own pool call the backend on shared memory; none may be given to a thread that waits
/// inside the backend with a lock held.
#[test]
fn callers_on_a_thread_pool_never_wait_for_themselves() {
    let backend = CpuBackend::new();
    // Enough that the work is worth sharing.
    let n = 1 << 20;
    let x = upload(&backend, &vec![1.0f32; n]);
    let y = backend.alloc(n * 4).unwrap();
    (0..64).into_par_iter().for_each(|i| {
        let (from, to) = if i % 2 == 0 { (x, y) } else { (y, x) };
        backend.unary(UnaryOp::Abs, from, to, n).unwrap();
    });
    assert!(download::<f32>(&backend, x, n).iter().all(|&x| x == 1.0 || x == 0.0));
}

/// Operands as large as the largest allocation, in which but few numbers are used. The system provides memory where it
/// is touched only; in f32, all of it would be more than can be had.
#[test]
fn what_operations_need_beside_their_operands_may_be_out_of_memory() {
    let backend = CpuBackend::new();
    let largest = (20..47).rev().find_map(|log| Some((1_usize << log, backend.alloc(1 << log).ok()?)));
    let (bytes, all) = largest.unwrap();
    let out = upload(&backend, &[7.0_f32; 64]);
    let zeros = backend.alloc_zeroed(512).unwrap();
    let apart = |ptr| Matrix::new(ptr, DType::F16, bytes / 2 - 32);
    let of_two = Matrix::new(out, F32, 4);
    let weights = |columns| QuantMatrix::new(zeros, QuantFormat::Q4_0, 4, columns);

    let token = (bytes / KvFormat::BLOCK_BYTES - 1) * KvFormat::BLOCK;
    let layout = HeadLayout { offset: 0, batch: 0, head: 0, token };
    let shape = AttentionShape { batch: 1, heads: 1, seq_q: 1, seq_kv: 2, head_dim: 32 };
    let cached = AttentionDesc::new(F32, zeros, all, all, out, shape)
        .with_kv_format(KvFormat::Q8_0)
        .with_k_layout(layout)
        .with_v_layout(layout);
    let columns = bytes / 4;
    let no_weights = QuantMatrix::new(zeros, QuantFormat::Q4_0, columns, 0);
    let sums = QuantMatmulDesc::new(
        2,
        Matrix::new(zeros, F32, 1),
        no_weights,
        Matrix::new(all, DType::F16, columns),
    );
    let outcomes = [
        backend.attention_ext(&cached),
        backend.quant_matmul(&sums),
        backend.quant_matmul(&QuantMatmulDesc::new(2, apart(all), weights(32), of_two)),
        backend.expert_matmul(&ExpertMatmulDesc::new([2, 1, 1], apart(all), weights(32), zeros, of_two)),
        backend.quantize_rows(&QuantizeRowsDesc::new(apart(all), out, 2, 32, 2)),
    ];
    for (i, outcome) in outcomes.into_iter().enumerate() {
        let kind = outcome.as_ref().map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::OutOfMemory), "call {i}: {outcome:?}");
    }
    assert_eq!(download::<f32>(&backend, out, 64), [7.0; 64]);
}
