//! Operands past the binding limit of products, attention and convolutions: shared by the matrices of a batch, with
//! sums in pieces beside large numbers, with long biases, and short ones in large blocks. Numbers are whole, so that
//! results are exact but for attention.

use std::time::Duration;

use backend_api::desc::{
    AttentionDesc, AttentionMask, AttentionShape, Bias, BiasAxis, ConvDesc, ConvShape, CopyDesc, ImageShape,
    MatmulDesc, Matrix, ReduceDesc, TensorDesc, Window,
};
use backend_api::{BackendResult, BackendTranspose, ComputeBackend, DType, ErrorKind, ReduceOp};
use backend_webgpu::WebGpuBackend;

use super::large_operands::{close, compare, result, upload, value};
use super::{BLOCK, expect_all, text};

/// A number beside which a 1 is lost where it is added alone.
const LARGE: f32 = 16_777_216.0;

/// A product with its operands, made of [`value`]s, or of ones.
#[derive(Clone, Copy, Debug)]
struct Product {
    extents: [usize; 3],
    transposed_a: bool,
    /// Matrices that share B.
    batch: usize,
    /// What C holds before, and is multiplied by.
    c: f32,
    beta: f64,
    bias: Option<(BiasAxis, f32)>,
    ones: bool,
}

impl Product {
    const PLAIN: Self =
        Self { extents: [1; 3], transposed_a: false, batch: 1, c: 7.0, beta: 0.0, bias: None, ones: false };

    fn operand(&self, i: usize) -> f32 {
        if self.ones { 1.0 } else { value(i) }
    }

    fn check(&self, backend: &WebGpuBackend) -> Result<(), String> {
        let [m, n, k] = self.extents;
        let whole = |count: usize| upload(backend, count, |i| self.operand(i)).map_err(text);
        let (a, b) = (whole(self.batch * m * k)?, whole(k * n)?);
        let bias = upload(backend, m.max(n), |_| self.bias.map_or(0.0, |(_, x)| x)).map_err(text)?;
        let got = result(backend, self.batch * m * n, |c| {
            backend.fill(c, DType::F32, self.batch * m * n, self.c.into())?;
            let matrix = |ptr, ld, stride| Matrix::new(ptr, DType::F32, ld).with_batch_stride(stride);
            let a = matrix(a, if self.transposed_a { m } else { k }, m * k);
            let mut desc = MatmulDesc::new(m, n, k, a, matrix(b, n, 0), matrix(c, n, m * n))
                .with_batch(self.batch)
                .with_scale(1.0, self.beta);
            if self.transposed_a {
                desc = desc.with_transpose(BackendTranspose::Trans, BackendTranspose::NoTrans);
            }
            desc.bias = self.bias.map(|(axis, _)| Bias { ptr: bias, axis });
            backend.matmul(&desc)
        })?;
        let added = self.c * self.beta as f32 + self.bias.map_or(0.0, |(_, x)| x);
        compare(&format!("{self:?}"), &got, |i| {
            let (matrix, row, column) = (i / (m * n), i / n % m, i % n);
            let a = |p: usize| if self.transposed_a { p * m + row } else { row * k + p };
            let sum: f32 =
                (0..k).map(|p| self.operand(matrix * m * k + a(p)) * self.operand(p * n + column)).sum();
            sum + added
        })?;
        [a, b, bias].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
    }
}

pub(super) fn products(backend: &WebGpuBackend) -> Result<(), String> {
    let plain = Product::PLAIN;
    let sums = Product { extents: [2, 16_000, 64], ones: true, ..plain };
    for product in [
        // Pieces of the sums are added up before anything else is.
        Product { c: LARGE, beta: 1.0, ..sums },
        Product { bias: Some((BiasAxis::Column, LARGE)), ..sums },
        sums,
        // A bias longer than a binding.
        Product { extents: [2, 20_000, 4], bias: Some((BiasAxis::Column, 5.0)), ..plain },
        Product { extents: [2, 20_000, 4], bias: Some((BiasAxis::Column, 5.0)), beta: 2.0, ..plain },
        Product { extents: [20_000, 2, 4], bias: Some((BiasAxis::Row, 5.0)), transposed_a: true, ..plain },
        // B for each of several matrices.
        Product { extents: [2, 300, 200], batch: 3, ..plain },
    ] {
        product.check(backend)?;
    }
    Ok(())
}

/// Operands that a long batch shares, beside results to which the product is added; C of f16, whose sums take twice
/// its bytes; and no products of matrices with rows that lie as far apart as there are bytes.
pub(super) fn sums_of_a_batch(backend: &WebGpuBackend) -> Result<(), String> {
    let (batch, apart) = (20_000, 20_000);
    let b = upload(backend, apart + 1, |i| 1.0 + (i > 0) as u8 as f32).map_err(text)?;
    let a = upload(backend, 2, |i| 3.0 + i as f32).map_err(text)?;
    for beta in [0.0, 1.0] {
        let got = result(backend, batch, |c| {
            backend.fill(c, DType::F32, batch, 5.0)?;
            let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
            let desc =
                MatmulDesc::new(1, 1, 2, matrix(a, 2), matrix(b, apart), matrix(c, 1).with_batch_stride(1));
            backend.matmul(&desc.with_batch(batch).with_scale(1.0, beta))
        })?;
        expect_all("a batch that shares its operands", &got, 3.0 + 4.0 * 2.0 + 5.0 * beta as f32)?;
    }
    [a, b].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)?;

    let ones = backend.alloc(4 * 100_000).map_err(text)?;
    let (m, n, k) = (128, 200, 250);
    let got = result(backend, m * n, |c| {
        match backend.fill(ones, DType::F16, k * n, 1.0) {
            // Without f16 there is nothing to be seen.
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return backend.fill(c, DType::F32, m * n, 250.0);
            }
            filled => filled?,
        }
        let halves = backend.alloc(2 * m * n)?;
        let matrix = |ptr, ld| Matrix::new(ptr, DType::F16, ld);
        backend.matmul(&MatmulDesc::new(m, n, k, matrix(ones, k), matrix(ones, n), matrix(halves, n)))?;
        let shape = [m, n];
        let tensor = |ptr, dtype| TensorDesc::packed(ptr, dtype, &shape);
        backend.copy(&CopyDesc::new(tensor(halves, DType::F16), tensor(c, DType::F32)))?;
        backend.free(halves)
    })?;
    expect_all("a product of f16", &got, 250.0)?;

    let (m, far) = (20_000, usize::MAX / 4);
    let got = result(backend, 2 * m, |c| {
        let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
        backend.matmul(&MatmulDesc::new(m, 2, 0, matrix(ones, far), matrix(ones, far), matrix(c, 2)))
    })?;
    expect_all("no products", &got, 0.0)?;
    backend.free(ones).map_err(text)
}

/// Products whose kernels are measured before.
pub(super) fn tuned(backend: &WebGpuBackend) -> Result<(), String> {
    for (extents, bias) in [([2, 20_000, 4], None), ([2, 16_000, 64], Some((BiasAxis::Column, 5.0)))] {
        let product = Product { extents, bias, ..Product::PLAIN };
        let [m, n, k] = extents;
        let [a, b, c] = [m * k, k * n, m * n].map(|count| upload(backend, count, value).map_err(text));
        let [a, b, c] = [a?, b?, c?];
        let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
        let mut desc = MatmulDesc::new(m, n, k, matrix(a, k), matrix(b, n), matrix(c, n));
        desc.bias = bias.map(|(axis, _)| Bias { ptr: b, axis });
        backend.tune_matmul(&desc, Duration::from_millis(50)).map_err(text)?;
        product.check(backend)?;
        [a, b, c].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)?;
    }
    Ok(())
}

/// Rows of three numbers, of which there are no whole vectors, at the beginning of a large block.
pub(super) fn short(backend: &WebGpuBackend) -> Result<(), String> {
    let block = backend.alloc(BLOCK).map_err(text)?;
    backend.copy_htod(block, bytemuck::cast_slice(&[1f32, 2.0, 3.0])).map_err(text)?;
    for n in [3, 1000, 70_000] {
        let b = upload(backend, 3 * n, value).map_err(text)?;
        let got = result(backend, n, |c| {
            let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
            backend.matmul(&MatmulDesc::new(1, n, 3, matrix(block, 3), matrix(b, n), matrix(c, n)))
        })?;
        compare("a short row", &got, |i| value(i) + 2.0 * value(n + i) + 3.0 * value(2 * n + i))?;
        backend.free(b).map_err(text)?;
    }
    backend.free(block).map_err(text)
}

/// Sums over the first axis of rows that are longer than a binding, and over two axes around another.
pub(super) fn sums(backend: &WebGpuBackend) -> Result<(), String> {
    for (rows, columns) in [(2, 20_000), (7, 20_000)] {
        let x = upload(backend, rows * columns, value).map_err(text)?;
        let got = result(backend, columns, |y| {
            let shape = [rows, columns];
            let x = TensorDesc::packed(x, DType::F32, &shape);
            backend.reduce_ext(&ReduceDesc::new(ReduceOp::Sum, x, &[0], y))
        })?;
        compare("sums of rows", &got, |c| (0..rows).map(|r| value(r * columns + c)).sum())?;
        backend.free(x).map_err(text)?;
    }
    // One number of each output reaches over more than a binding, although each loop over outputs does not.
    let shape = [2, 3, 2, 4000];
    let x = upload(backend, 48_000, value).map_err(text)?;
    let got = result(backend, 12_000, |y| {
        backend.reduce_ext(&ReduceDesc::new(
            ReduceOp::Sum,
            TensorDesc::packed(x, DType::F32, &shape),
            &[0, 2],
            y,
        ))
    })?;
    compare("sums over two axes", &got, |i| {
        let first = i / 4000 * 8000 + i % 4000;
        [0, 4000, 24_000, 28_000].into_iter().map(|step| value(first + step)).sum()
    })?;
    backend.free(x).map_err(text)
}

/// A mask that both sequences share. It hides all keys but one from each query.
pub(super) fn shared_mask(backend: &WebGpuBackend) -> Result<(), String> {
    let (batch, heads, seq, head_dim) = (2, 8, 64, 8);
    let shown = |head: usize, query: usize| (head * 5 + query * 3) % seq;
    let mask = upload(backend, heads * seq * seq, |i| {
        let (head, query) = (i / (seq * seq), i / seq % seq);
        if i % seq == shown(head, query) { 0.0 } else { f32::NEG_INFINITY }
    })
    .map_err(text)?;
    let n = batch * heads * seq * head_dim;
    let x = upload(backend, n, value).map_err(text)?;
    let got = result(backend, n, |o| {
        let shape = AttentionShape { batch, heads, seq_q: seq, seq_kv: seq, head_dim };
        let mut desc = AttentionDesc::new(DType::F32, x, x, x, o, shape);
        desc.mask =
            Some(AttentionMask { ptr: mask, batch_stride: 0, head_stride: seq * seq, query_stride: seq });
        backend.attention_ext(&desc)
    })?;
    close("attention with a shared mask", &got, |i| {
        let (matrix, query) = (i / (seq * head_dim), i / head_dim % seq);
        value((matrix * seq + shown(matrix % heads, query)) * head_dim + i % head_dim).into()
    })?;
    [mask, x].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

/// Filters that are larger than a binding, for several images, and channels in pieces beside a large bias.
pub(super) fn convolutions(backend: &WebGpuBackend) -> Result<(), String> {
    let conv = |[batch, channels, side, filters, taps]: [usize; 5], bias: f32| -> Result<(), String> {
        let ones = |count: usize| upload(backend, count, |_| 1.0);
        let run = || -> BackendResult<[u64; 3]> {
            let bias = upload(backend, filters, |_| bias)?;
            Ok([ones(batch * channels * side * side)?, ones(filters * channels * taps * taps)?, bias])
        };
        let operands = run().map_err(text)?;
        let [input, filter, added] = operands;
        let result = result(backend, batch * filters * (side - taps + 1).pow(2), |output| {
            let image = ImageShape::nchw([batch, channels, side, side]);
            let shape = ConvShape::new(image, filters, Window::new([taps, taps]));
            backend.conv2d(&ConvDesc::new(DType::F32, input, filter, output, shape).with_bias(added))
        })?;
        expect_all("a convolution of ones", &result, (channels * taps * taps) as f32 + bias)?;
        operands.into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
    };
    conv([2, 64, 6, 64, 3], 1.0)?;
    conv([1, 64, 120, 16, 1], LARGE)
}
