//! Operands that begin some elements after their handle: offsets odd and even, of which no two are the same;
//! exact.

use backend_api::desc::{BinaryDesc, CopyDesc, MatmulDesc, Matrix, PermuteDesc, ReduceDesc, TensorDesc};
use backend_api::{BinaryOp, DType, ReduceOp};

use crate::case::Case;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

/// Rows, columns and row stride of the tensors.
const ROWS: usize = 5;
const COLUMNS: usize = 7;
const STRIDE: usize = 10;

pub(super) fn cases() -> Vec<Case> {
    let offsets = [1, 2, 3, 4, 7, 64];
    let types = [DType::F32, DType::F16];
    let floats = types.into_iter().flat_map(|dtype| offsets.map(|offset| (dtype, offset)));
    let products = floats.flat_map(|(dtype, offset)| {
        [[3, 4, 5], [1, 32, 48], [40, 36, 33], [64, 64, 32]].map(|sizes| matmul(dtype, offset, sizes))
    });
    let all = DType::ALL.into_iter().flat_map(|dtype| offsets.map(|offset| (dtype, offset)));
    let tensors = all.flat_map(|(dtype, offset)| {
        [copy(dtype, offset), permute(dtype, offset), binary(dtype, offset), sum(dtype, offset)]
    });
    products.chain(tensors).collect()
}

/// Integers so small that every sum of a case is exact in f16.
fn small(rng: &mut Rng, n: usize) -> Vec<f64> {
    (0..n).map(|_| rng.below(4) as f64).collect()
}

/// Memory in which the rows of a matrix begin at `offset`, `stride` apart; NaN, or 77 for integers, around
/// them.
fn stored(dtype: DType, values: &[f64], columns: usize, offset: usize, stride: usize) -> Vec<f64> {
    let blank = if dtype.is_float() { f64::NAN } else { 77.0 };
    let mut memory = vec![blank; offset + values.len() / columns * stride];
    for (row, values) in values.chunks(columns).enumerate() {
        memory[offset + row * stride..][..columns].copy_from_slice(values);
    }
    memory
}

/// Where [`stored`] puts the elements, with what they must be.
fn places(values: &[f64], columns: usize, offset: usize, stride: usize) -> Vec<(usize, Want)> {
    let place = |i: usize| offset + i / columns * stride + i % columns;
    values.iter().enumerate().map(|(i, &value)| (place(i), Want::number(value))).collect()
}

fn name(what: &str, dtype: DType, offset: usize) -> String {
    format!("{what}_{dtype}_from_{offset}")
}

fn matmul(dtype: DType, offset: usize, [m, n, k]: [usize; 3]) -> Case {
    let name = name(&format!("matmul_{m}x{n}x{k}"), dtype, offset);
    Case::new("offsets", name, move |rng| {
        let (a, b) = (small(rng, m * k), small(rng, k * n));
        let dot = |i: usize| (0..k).map(|p| a[i / n * k + p] * b[p * n + i % n]).sum();
        let c: Vec<f64> = (0..m * n).map(dot).collect();
        let starts = [offset, offset + 1, 2 * offset];
        let [lda, ldb, ldc] = [k + 3, n + 1, n + 4];
        let blank = stored(dtype, &vec![f64::NAN; m * n], n, starts[2], ldc);
        let mut trial = Trial::new();
        trial.input("a", dtype, &stored(dtype, &a, k, starts[0], lda));
        trial.input("b", dtype, &stored(dtype, &b, n, starts[1], ldb));
        trial.scattered("c", dtype, blank, places(&c, n, starts[2], ldc));
        trial.calling(move |backend, p| {
            let matrix = |i: usize, ld| Matrix::new(p[i], dtype, ld).with_offset(starts[i]);
            backend.matmul(&MatmulDesc::new(m, n, k, matrix(0, lda), matrix(1, ldb), matrix(2, ldc)))
        })
    })
}

fn copy(dtype: DType, offset: usize) -> Case {
    Case::new("offsets", name("copy", dtype, offset), move |rng| {
        let x = small(rng, ROWS * COLUMNS);
        let blank = stored(dtype, &vec![0.0; x.len()], COLUMNS, offset + 1, COLUMNS);
        let mut trial = Trial::new();
        trial.input("src", dtype, &stored(dtype, &x, COLUMNS, offset, STRIDE));
        trial.scattered("dst", dtype, blank, places(&x, COLUMNS, offset + 1, COLUMNS));
        trial.calling(move |backend, p| {
            let shape = [ROWS, COLUMNS];
            let src = TensorDesc::strided(p[0], dtype, &shape, &[STRIDE, 1]).with_offset(offset);
            let dst = TensorDesc::packed(p[1], dtype, &shape).with_offset(offset + 1);
            backend.copy(&CopyDesc::new(src, dst))
        })
    })
}

fn permute(dtype: DType, offset: usize) -> Case {
    Case::new("offsets", name("permute", dtype, offset), move |rng| {
        let x = small(rng, ROWS * COLUMNS);
        let y: Vec<f64> = (0..x.len()).map(|i| x[i % ROWS * COLUMNS + i / ROWS]).collect();
        let blank = stored(dtype, &vec![0.0; x.len()], ROWS, offset + 2, STRIDE);
        let mut trial = Trial::new();
        trial.input("input", dtype, &stored(dtype, &x, COLUMNS, offset, COLUMNS));
        trial.scattered("output", dtype, blank, places(&y, ROWS, offset + 2, STRIDE));
        trial.calling(move |backend, p| {
            let (from, to) = ([ROWS, COLUMNS], [COLUMNS, ROWS]);
            let input = TensorDesc::packed(p[0], dtype, &from).with_offset(offset);
            let output = TensorDesc::strided(p[1], dtype, &to, &[STRIDE, 1]).with_offset(offset + 2);
            backend.permute(&PermuteDesc::new(input, output, &[1, 0]))
        })
    })
}

/// The sum of two parts of one buffer, into a third one of it.
fn binary(dtype: DType, offset: usize) -> Case {
    Case::new("offsets", name("binary_ext_in_one_buffer", dtype, offset), move |rng| {
        let n = ROWS * COLUMNS;
        let (a, b) = (small(rng, n), small(rng, n));
        let sums: Vec<f64> = a.iter().zip(&b).map(|(x, y)| x + y).collect();
        let starts = [offset, offset + n + 1, offset + 2 * n + 2];
        let mut memory = vec![5.0; starts[2] + n + 3];
        memory[starts[0]..][..n].copy_from_slice(&a);
        memory[starts[1]..][..n].copy_from_slice(&b);
        let mut trial = Trial::new();
        trial.scattered("output", dtype, memory, places(&sums, n, starts[2], n));
        trial.calling(move |backend, p| {
            let shape = [n];
            let [a, b, output] =
                starts.map(|start| TensorDesc::packed(p[0], dtype, &shape).with_offset(start));
            backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, a, b, output))
        })
    })
}

/// The sums of the rows of a part of a matrix.
fn sum(dtype: DType, offset: usize) -> Case {
    Case::new("offsets", name("reduce_ext", dtype, offset), move |rng| {
        let x = small(rng, ROWS * COLUMNS);
        let sums: Vec<f64> = x.chunks(COLUMNS).map(|row| row.iter().sum()).collect();
        let mut trial = Trial::new();
        trial.input("input", dtype, &stored(dtype, &x, COLUMNS, offset, STRIDE));
        trial.output("output", dtype, sums.into_iter().map(Want::number).collect());
        trial.calling(move |backend, p| {
            let input = TensorDesc::strided(p[0], dtype, &[ROWS, COLUMNS], &[STRIDE, 1]).with_offset(offset);
            backend.reduce_ext(&ReduceDesc::new(ReduceOp::Sum, input, &[1], p[1]))
        })
    })
}
