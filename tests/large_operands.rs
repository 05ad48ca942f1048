//! Operands that are three times as large as what can be bound, and a little more, in each family that divides its
//! launches. Numbers are whole and small, so results are exact, but for softmax, norms and attention.

use backend_api::desc::{
    CopyDesc, CumSumDesc, GatherDesc, IndexShape, MatmulDesc, Matrix, PermuteDesc, ReduceDesc, RmsNormDesc,
    ScatterDesc, SoftmaxDesc, TensorDesc,
};
use backend_api::{
    BackendError, BackendResult, BackendTranspose, BinaryOp, ComputeBackend, DType, ErrorKind, ReduceOp,
    ScatterOp, UnaryOp,
};
use backend_webgpu::WebGpuBackend;

use super::{BINDING, expect_all, read, text};

/// Extents of a matrix of f32 that is larger than three bindings.
const ROWS: usize = 193;
const COLUMNS: usize = 257;
const ALL: usize = ROWS * COLUMNS;
const _: () = assert!(ALL * 4 > 3 * BINDING && !(ALL * 4).is_multiple_of(BINDING));

pub(super) fn value(i: usize) -> f32 {
    (i % 13) as f32 - 6.0
}

pub(super) fn upload(backend: &WebGpuBackend, n: usize, value: impl Fn(usize) -> f32) -> BackendResult<u64> {
    let numbers: Vec<f32> = (0..n).map(value).collect();
    let ptr = backend.alloc(4 * n)?;
    backend.copy_htod(ptr, bytemuck::cast_slice(&numbers))?;
    Ok(ptr)
}

pub(super) fn compare(what: &str, got: &[f32], want: impl Fn(usize) -> f32) -> Result<(), String> {
    match (0..got.len()).find(|&i| got[i] != want(i)) {
        Some(i) => Err(format!("{what}: number {i} of {} is {}, expected {}", got.len(), got[i], want(i))),
        None => Ok(()),
    }
}

/// Compares numbers of about 1 that roundings of f32 change.
pub(super) fn close(what: &str, got: &[f32], want: impl Fn(usize) -> f64) -> Result<(), String> {
    match (0..got.len()).find(|&i| (f64::from(got[i]) - want(i)).abs().total_cmp(&1e-5).is_gt()) {
        Some(i) => Err(format!("{what}: number {i} of {} is {}, expected {}", got.len(), got[i], want(i))),
        None => Ok(()),
    }
}

/// The first `n` numbers that `call` writes to memory of its own.
pub(super) fn result(
    backend: &WebGpuBackend,
    n: usize,
    call: impl FnOnce(u64) -> BackendResult<()>,
) -> Result<Vec<f32>, String> {
    let run = || -> BackendResult<Vec<f32>> {
        let output = backend.alloc(4 * n)?;
        backend.fill(output, DType::F32, n, 99.0)?;
        call(output)?;
        let got = read(backend, output, n)?;
        backend.free(output)?;
        Ok(got)
    };
    run().map_err(text)
}

pub(super) fn elements(backend: &WebGpuBackend) -> Result<(), String> {
    let x = upload(backend, ALL, value).map_err(text)?;
    let got = result(backend, ALL, |y| backend.unary(UnaryOp::Neg, x, y, ALL))?;
    compare("unary", &got, |i| -value(i))?;
    let got = result(backend, ALL, |y| backend.binary(BinaryOp::Mul, x, x, y, ALL))?;
    compare("binary", &got, |i| value(i) * value(i))?;
    let got = result(backend, ALL, |y| backend.binary(BinaryOp::Add, x, y, y, ALL))?;
    compare("binary in place", &got, |i| value(i) + 99.0)?;
    let (stored, turned) = ([ROWS, COLUMNS], [COLUMNS, ROWS]);
    let got = result(backend, ALL, |y| {
        let (x, y) = (TensorDesc::packed(x, DType::F32, &stored), TensorDesc::packed(y, DType::F32, &turned));
        backend.permute(&PermuteDesc::new(x, y, &[1, 0]))
    })?;
    compare("permute", &got, |i| value(i % ROWS * COLUMNS + i / ROWS))?;
    let got = result(backend, ALL, |y| {
        let halves = backend.alloc(2 * ALL)?;
        let tensor = |ptr, dtype| TensorDesc::packed(ptr, dtype, &stored);
        let there = backend.copy(&CopyDesc::new(tensor(x, DType::F32), tensor(halves, DType::F16)));
        match there {
            // Nothing is to be seen where the device has no f16.
            Err(error) if error.kind() == ErrorKind::Unsupported => backend.copy_dtod(y, x, 4 * ALL)?,
            there => {
                there?;
                backend.copy(&CopyDesc::new(tensor(halves, DType::F16), tensor(y, DType::F32)))?;
            }
        }
        backend.free(halves)
    })?;
    compare("copy", &got, value)?;
    let got = result(backend, ALL, |y| {
        // Within one buffer, and aligned to no word.
        let block = backend.alloc(8 * ALL + 2)?;
        let to = backend.view(block, 4 * ALL + 2, 4 * ALL)?;
        backend.copy_dtod(block, x, 4 * ALL)?;
        backend.copy_dtod(to, block, 4 * ALL)?;
        backend.copy_dtod(y, to, 4 * ALL)?;
        backend.free(to)?;
        backend.free(block)
    })?;
    compare("copy_dtod", &got, value)?;
    backend.free(x).map_err(text)
}

pub(super) fn rows(backend: &WebGpuBackend) -> Result<(), String> {
    let x = upload(backend, ALL, value).map_err(text)?;
    let shape = [ROWS, COLUMNS];
    let sum = |axes: &[usize], n: usize| {
        result(backend, n, |y| {
            let x = TensorDesc::packed(x, DType::F32, &shape);
            backend.reduce_ext(&ReduceDesc::new(ReduceOp::Sum, x, axes, y))
        })
    };
    let row = |r: usize| (0..COLUMNS).map(|c| value(r * COLUMNS + c)).sum::<f32>();
    compare("sums of rows", &sum(&[1], ROWS)?, row)?;
    let column = |c: usize| (0..ROWS).map(|r| value(r * COLUMNS + c)).sum::<f32>();
    compare("sums of columns", &sum(&[0], COLUMNS)?, column)?;
    compare("sum", &sum(&[0, 1], 1)?, |_| (0..ALL).map(value).sum())?;

    let got = result(backend, ALL, |y| backend.cumsum(&CumSumDesc::rows(DType::F32, x, y, ROWS, COLUMNS)))?;
    let before = |i: usize| (i / COLUMNS * COLUMNS..=i).map(value).sum();
    compare("cumsum", &got, before)?;

    let rows: Vec<Vec<f64>> =
        (0..ROWS).map(|r| (0..COLUMNS).map(|c| f64::from(value(r * COLUMNS + c))).collect()).collect();
    let got = result(backend, ALL, |y| backend.softmax(&SoftmaxDesc::rows(DType::F32, x, y, ROWS, COLUMNS)))?;
    let sums: Vec<f64> = rows.iter().map(|row| row.iter().map(|x| x.exp()).sum()).collect();
    close("softmax", &got, |i| rows[i / COLUMNS][i % COLUMNS].exp() / sums[i / COLUMNS])?;
    let got = result(backend, ALL, |y| backend.rms_norm(&RmsNormDesc::new(DType::F32, x, y, ROWS, COLUMNS)))?;
    let squares: Vec<f64> =
        rows.iter().map(|row| row.iter().map(|x| x * x).sum::<f64>() / COLUMNS as f64 + 1e-6).collect();
    close("rms_norm", &got, |i| rows[i / COLUMNS][i % COLUMNS] / squares[i / COLUMNS].sqrt())?;

    let table = upload(backend, 16 * COLUMNS, value).map_err(text)?;
    let chosen: Vec<u32> = (0..ROWS as u32).map(|i| i * 7 % 17).collect();
    let indices = backend.alloc(4 * ROWS).map_err(text)?;
    backend.copy_htod(indices, bytemuck::cast_slice(&chosen)).map_err(text)?;
    let got = result(backend, ALL, |y| {
        let shape = IndexShape { rows: 16, columns: COLUMNS, count: ROWS };
        backend.gather(&GatherDesc::new(DType::F32, table, indices, y, shape))
    })?;
    compare("gather", &got, |i| match chosen[i / COLUMNS] as usize {
        16 => 0.0,
        row => value(row * COLUMNS + i % COLUMNS),
    })?;

    // A slice that is larger than a binding is refused, with nothing written.
    let output = backend.alloc(4 * ALL).map_err(text)?;
    backend.fill(output, DType::F32, ALL, 7.0).map_err(text)?;
    match backend.softmax(&SoftmaxDesc::rows(DType::F32, x, output, 1, ALL)) {
        Err(BackendError::Limit { what: "bytes of input" | "bytes of output", max, .. })
            if max == BINDING => {}
        other => return Err(format!("a slice larger than a binding gave {other:?}")),
    }
    expect_all("a refused output", &read(backend, output, ALL).map_err(text)?, 7.0)?;
    [x, table, indices, output].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

/// Lookups in large tables, and large results and sources that are scattered to these, beside loops on the host.
pub(super) fn lookups(backend: &WebGpuBackend) -> Result<(), String> {
    for (outer, count, per_element) in
        [(1, 24, false), (1, 24, true), (2, 40, false), (1, 300, false), (2, 300, true)]
    {
        let shape = Lookup { outer, count, per_element };
        let chosen = shape.indices();
        let [table, source] =
            [outer * ALL, outer * count * COLUMNS].map(|n| upload(backend, n, value).map_err(text));
        let (table, source) = (table?, source?);
        let indices = backend.alloc(4 * chosen.len()).map_err(text)?;
        backend.copy_htod(indices, bytemuck::cast_slice(&chosen)).map_err(text)?;

        let extents = IndexShape { rows: ROWS, columns: COLUMNS, count };
        let got = result(backend, outer * count * COLUMNS, |y| {
            let desc = GatherDesc::new(DType::F32, table, indices, y, extents).with_outer(outer);
            backend.gather(&if per_element { desc.with_per_element() } else { desc })
        })?;
        compare(&format!("gather {shape:?}"), &got, |i| shape.place(&chosen, i).map_or(0.0, value))?;

        for op in [ScatterOp::Assign, ScatterOp::Add] {
            let got = result(backend, outer * ALL, |y| {
                backend.copy_dtod(y, table, 4 * outer * ALL)?;
                let desc = ScatterDesc::new(op, DType::F32, y, indices, source, extents).with_outer(outer);
                backend.scatter(&if per_element { desc.with_per_element() } else { desc })
            })?;
            let mut want: Vec<f32> = (0..outer * ALL).map(value).collect();
            for i in 0..outer * count * COLUMNS {
                if let Some(place) = shape.place(&chosen, i) {
                    want[place] = if op == ScatterOp::Add { want[place] + value(i) } else { value(i) };
                }
            }
            compare(&format!("scatter {op:?} {shape:?}"), &got, |i| want[i])?;
        }
        [table, source, indices].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)?;
    }
    Ok(())
}

/// Rows of 9,336 bytes in memory that begins between multiples of 256 bytes, so that parts begin anywhere.
pub(super) fn offsets(backend: &WebGpuBackend) -> Result<(), String> {
    let (columns, count) = (2334, 13);
    let n = columns * count;
    let table = upload(backend, columns, value).map_err(text)?;
    let indices = upload(backend, count, |_| 0.0).map_err(text)?;
    for offset in [0, 32, 64, 96, 128] {
        let got = result(backend, n, |y| {
            let block = backend.alloc(4 * n + offset)?;
            let part = backend.view(block, offset, 4 * n)?;
            let shape = IndexShape { rows: 1, columns, count };
            backend.gather(&GatherDesc::new(DType::F32, table, indices, part, shape))?;
            backend.copy_dtod(y, part, 4 * n)?;
            [part, block].into_iter().try_for_each(|ptr| backend.free(ptr))
        })?;
        compare(&format!("gather to byte {offset}"), &got, |i| value(i % columns))?;
    }
    [table, indices].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

/// A lookup in `outer` tables of `ROWS` × `COLUMNS`.
#[derive(Debug)]
struct Lookup {
    outer: usize,
    count: usize,
    per_element: bool,
}

impl Lookup {
    /// Indices all over the table, some of them twice, the last row and the first one outside, and negative ones.
    fn indices(&self) -> Vec<u32> {
        let n = if self.per_element { self.outer * self.count * COLUMNS } else { self.count };
        let index = |i: u32| match i % 12 {
            9 => ROWS as u32 - 1,
            10 => ROWS as u32,
            11 => u32::MAX,
            _ => i / 2 * 29 % ROWS as u32,
        };
        (0..n as u32).map(index).collect()
    }

    /// The element of the tables that element `i` of what is looked up or scattered belongs to.
    fn place(&self, chosen: &[u32], i: usize) -> Option<usize> {
        let (table, row) = (i / COLUMNS / self.count, i / COLUMNS % self.count);
        let index = chosen[if self.per_element { i } else { row }] as usize;
        (index < ROWS).then_some((table * ROWS + index) * COLUMNS + i % COLUMNS)
    }
}

/// Products of which A, B in either order, or C is large.
pub(super) fn products(backend: &WebGpuBackend) -> Result<(), String> {
    let (no, yes) = (BackendTranspose::NoTrans, BackendTranspose::Trans);
    for (m, n, k, trans) in [
        (ROWS, 3, COLUMNS, [no, no]),
        (COLUMNS, 3, ROWS, [yes, no]),
        (2, ROWS, COLUMNS, [no, yes]),
        (2, COLUMNS, ROWS, [no, no]),
        (ROWS, COLUMNS, 2, [no, no]),
    ] {
        let (a, b) =
            (upload(backend, m * k, value).map_err(text)?, upload(backend, k * n, value).map_err(text)?);
        let ld = |trans: BackendTranspose, rows, columns| if trans.is_transposed() { rows } else { columns };
        let (lda, ldb) = (ld(trans[0], m, k), ld(trans[1], k, n));
        let got = result(backend, m * n, |c| {
            let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
            let desc = MatmulDesc::new(m, n, k, matrix(a, lda), matrix(b, ldb), matrix(c, n));
            backend.matmul(&desc.with_transpose(trans[0], trans[1]))
        })?;
        let at = |trans: BackendTranspose, ld: usize, row: usize, column: usize| {
            value(if trans.is_transposed() { column * ld + row } else { row * ld + column })
        };
        let want = |i: usize| -> f32 {
            (0..k).map(|j| at(trans[0], lda, i / n, j) * at(trans[1], ldb, j, i % n)).sum()
        };
        compare(&format!("product {m}x{n}x{k} {trans:?}"), &got, want)?;
        [a, b].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)?;
    }
    Ok(())
}

/// Attention over many sequences of ones, and a convolution of many images of ones.
pub(super) fn batches(backend: &WebGpuBackend) -> Result<(), String> {
    let ones = backend.alloc(4 * ALL + 4 * BINDING).map_err(text)?;
    backend.fill(ones, DType::F32, ALL + BINDING, 1.0).map_err(text)?;
    let (batch, seq_q, seq_kv, head_dim) = (25, 3, 64, 32);
    let got = result(backend, batch * seq_q * head_dim, |o| {
        backend.attention(ones, ones, ones, o, batch, 1, seq_q, seq_kv, head_dim, 0.125, false)
    })?;
    match got.iter().find(|&&x| (x - 1.0).abs() > 1e-5) {
        Some(x) => return Err(format!("attention over ones gives {x}")),
        None => assert!(4 * batch * seq_kv * head_dim > 3 * BINDING),
    }
    let got = result(backend, 7 * 3 * 59 * 59, |y| {
        let (input, filter, output) = ([7, 2, 61, 61], [3, 2, 3, 3], [7, 3, 59, 59]);
        backend.conv2d_forward(ones, &input, ones, &filter, y, &output, &[1, 1], &[0, 0])
    })?;
    expect_all("convolution of ones", &got, 18.0)?;
    backend.free(ones).map_err(text)
}
