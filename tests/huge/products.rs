//! Products of matrices, and attention.

use backend_api::desc::{AttentionDesc, AttentionShape, MatmulDesc, Matrix};
use backend_api::{BackendTranspose, Command, DType};

use super::family::Operand::{Items, Shared};
use super::family::{Call, Family, Fill, Piece, Size, Values, along, buffer, numbers, places, results};

const F32: DType = DType::F32;

fn matrix(ptr: u64, ld: usize) -> Matrix {
    Matrix::new(ptr, F32, ld)
}

/// A product of so many rows of A, of which `sampled` are compared at each place.
fn rows_of_a(size: &Size, rows: usize, [n, k]: [usize; 2], sampled: usize) -> Family {
    let buffers = vec![numbers(rows * k), numbers(k * n), results(rows * n)];
    let operands = [Items(0, 4 * k), Shared(1), Items(2, 4 * n)];
    along(size, buffers, rows, sampled, &operands, move |_, m, run| {
        let desc = MatmulDesc::new(m, n, k, matrix(1, k), matrix(2, n), matrix(3, n));
        run("matmul", Command::Matmul(&desc));
    })
}

/// A has many rows.
pub(super) fn a(size: &Size) -> Family {
    let k = size.columns();
    rows_of_a(size, size.numbers() / k, [64, k], 2)
}

/// A has many rows of f16.
pub(super) fn a_f16(size: &Size) -> Family {
    let (n, k) = (256, size.columns());
    let rows = size.bytes / 2 / k;
    let halves = |n: usize, fill: Fill| buffer(2 * n, fill);
    let normal = Fill::Normal(DType::F16);
    let buffers = vec![halves(rows * k, normal.clone()), halves(k * n, normal), halves(rows * n, Fill::Nan)];
    let operands = [Items(0, 2 * k), Shared(1), Items(2, 2 * n)];
    along(size, buffers, rows, 2, &operands, move |_, m, run| {
        let matrix = |ptr, ld| Matrix::new(ptr, DType::F16, ld);
        let desc = MatmulDesc::new(m, n, k, matrix(1, k), matrix(2, n), matrix(3, n));
        run("matmul", Command::Matmul(&desc));
    })
}

/// C has many rows.
pub(super) fn c(size: &Size) -> Family {
    let n = size.columns();
    rows_of_a(size, size.numbers() / n, [n, 32], 1)
}

/// Rows of A and of C.
const FEW: usize = 4;

/// Pieces of rows of a matrix of f32 with `ld` columns: columns `first` to `first + count` of each.
fn columns(buffer: usize, rows: usize, ld: usize, first: usize, count: usize) -> Vec<Piece> {
    let row = |row: usize| Piece::Part(buffer, 4 * (row * ld + first)..4 * (row * ld + first + count));
    (0..rows).map(row).collect()
}

/// B is stored transposed and has many rows, one for each column of C.
pub(super) fn b_transposed(size: &Size) -> Family {
    let k = size.columns();
    let all = size.numbers() / k;
    let buffers = vec![numbers(FEW * k), numbers(all * k), results(FEW * all)];
    let call = |first: usize, n: usize, c: Vec<Piece>, offset: usize, ld: usize| {
        let b = Piece::Part(1, 4 * first * k..4 * (first + n) * k);
        let a = Piece::Part(0, 0..4 * FEW * k);
        Call::new(vec![vec![a], vec![b], c], move |run| {
            let c = matrix(3, ld).with_offset(offset);
            let desc = MatmulDesc::new(FEW, n, k, matrix(1, k), matrix(2, k), c)
                .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans);
            run("matmul", Command::Matmul(&desc));
        })
    };
    let in_part = size.part / (4 * k);
    let c = || vec![Piece::Part(2, 0..4 * FEW * all)];
    let part = |first: usize| call(first, in_part.min(all - first), c(), first, all);
    let sample = |first: usize| call(first, 3, columns(2, FEW, all, first, 3), 0, 3);
    Family {
        parts: (0..all).step_by(in_part).map(part).collect(),
        samples: places(all, in_part, 3).into_iter().map(sample).collect(),
        ..Family::new(buffers, call(0, all, c(), 0, all))
    }
}

/// B has long rows. The parts are products of as many numbers, of shorter rows.
pub(super) fn b_wide(size: &Size) -> Family {
    let k = 16;
    let all = size.numbers() / k;
    let call = |n: usize, [b, c]: [Vec<Piece>; 2]| {
        Call::new(vec![vec![Piece::Part(0, 0..4 * FEW * k)], b, c], move |run| {
            let desc = MatmulDesc::new(FEW, n, k, matrix(1, k), matrix(2, n), matrix(3, n));
            run("matmul", Command::Matmul(&desc));
        })
    };
    let in_part = size.part / (4 * k);
    let dense = |first: usize, n: usize| {
        [(1, k), (2, FEW)]
            .map(|(buffer, rows)| vec![Piece::Part(buffer, 4 * rows * first..4 * rows * (first + n))])
    };
    let sample = |first: usize| call(3, [columns(1, k, all, first, 3), columns(2, FEW, all, first, 3)]);
    let part = |first: usize| {
        let n = in_part.min(all - first);
        call(n, dense(first, n))
    };
    let buffers = vec![numbers(FEW * k), numbers(all * k), results(FEW * all)];
    Family {
        parts: (0..all).step_by(in_part).map(part).collect(),
        samples: places(all, in_part, 3).into_iter().map(sample).collect(),
        ..Family::new(buffers, call(all, dense(0, all)))
    }
}

/// All three operands have many matrices.
pub(super) fn batch(size: &Size) -> Family {
    let side = 32;
    let elements = side * side;
    let items = size.numbers() / elements;
    let buffers = vec![numbers(items * elements), numbers(items * elements), results(items * elements)];
    let operands = [0, 1, 2].map(|buffer| Items(buffer, 4 * elements));
    along(size, buffers, items, 1, &operands, move |_, batch, run| {
        let matrix = |ptr| matrix(ptr, side).with_batch_stride(elements);
        let desc = MatmulDesc::new(side, side, side, matrix(1), matrix(2), matrix(3)).with_batch(batch);
        run("matmul", Command::Matmul(&desc));
    })
}

/// Sums of very many products, nearly all of them of zeros: two rows of A, which are too far apart to be bound together, and
/// B of one column. Each part has some of one row, and reads B by itself.
pub(super) fn k(size: &Size) -> Family {
    let k = size.numbers() / 2;
    let in_part = size.part / 4;
    let call = |row: usize, rows: usize, first: usize, count: usize| {
        let start = row * k + first;
        let a = vec![Piece::Part(0, 4 * start..4 * (start + (rows - 1) * k + count))];
        let b = vec![Piece::Part(1, 4 * first..4 * (first + count))];
        let c = vec![Piece::Part(2, 4 * row..4 * (row + rows))];
        Call::new(vec![a, b, c], move |run| {
            let desc = MatmulDesc::new(rows, 1, count, matrix(1, k), matrix(2, 1), matrix(3, 1));
            run("matmul", Command::Matmul(&desc));
        })
    };
    let part = |first: usize| [0, 1].map(|row| call(row, 1, first, in_part.min(k - first)));
    let parts = (0..k).step_by(in_part).flat_map(part).collect();
    Family { parts, ..planted_sums(k, in_part, call(0, 2, 0, k), |row, place| row * k + place) }
}

/// Sums of very many products with A transposed, so that its parts are bound with both columns.
pub(super) fn k_transposed(size: &Size) -> Family {
    let k = size.numbers() / 2;
    let in_part = size.part / 8;
    let call = |first: usize, count: usize| {
        let [a, b] = [(0, 8), (1, 4)]
            .map(|(buffer, item)| vec![Piece::Part(buffer, item * first..item * (first + count))]);
        Call::new(vec![a, b, vec![Piece::Part(2, 0..8)]], move |run| {
            let desc = MatmulDesc::new(2, 1, count, matrix(1, 2), matrix(2, 1), matrix(3, 1));
            let desc = desc.with_transpose(BackendTranspose::Trans, BackendTranspose::NoTrans);
            run("matmul", Command::Matmul(&desc));
        })
    };
    let parts = (0..k).step_by(in_part).map(|first| call(first, in_part.min(k - first))).collect();
    Family { parts, ..planted_sums(k, in_part, call(0, k), |row, place| 2 * place + row) }
}

/// Two sums of `k` products of zeros and threes, but for a few numbers that are planted in A, whose element for a row and
/// a place in the sum `element` says.
fn planted_sums(k: usize, in_part: usize, whole: Call, element: impl Fn(usize, usize) -> usize) -> Family {
    let (mut planted, mut want) = (Vec::new(), [0f32; 2]);
    for (i, place) in places(k, in_part, 1).into_iter().enumerate() {
        for (row, want) in want.iter_mut().enumerate() {
            let value = (i + 1 + 100 * row) as f32;
            planted.push((0, 4 * element(row, place), value.to_le_bytes().to_vec()));
            *want += 3.0 * value;
        }
    }
    let buffers =
        vec![buffer(8 * k, Fill::Value(F32, 0.0)), buffer(4 * k, Fill::Value(F32, 3.0)), results(2)];
    let values = vec![Values { buffer: 2, byte: 0, want: want.to_vec() }];
    Family { planted, values, ..Family::new(buffers, whole) }
}

/// Keys and values of many sequences, for a few queries of each.
fn attention(size: &Size, dtype: DType, seq_q: usize) -> Family {
    let [heads, seq_kv, head_dim] = if size.is_large() { [8, 1024, 128] } else { [2, 16, 32] };
    let cached = heads * seq_kv * head_dim;
    let asked = heads * seq_q * head_dim;
    let bytes = dtype.size();
    let items = size.bytes / bytes / cached;
    let normal = |n: usize| buffer(n * bytes, Fill::Normal(dtype));
    let buffers = vec![
        normal(items * asked),
        normal(items * cached),
        normal(items * cached),
        buffer(items * asked * bytes, Fill::Nan),
    ];
    let operands =
        [(0, asked), (1, cached), (2, cached), (3, asked)].map(|(buffer, n)| Items(buffer, n * bytes));
    along(size, buffers, items, 1, &operands, move |_, batch, run| {
        let shape = AttentionShape { batch, heads, seq_q, seq_kv, head_dim };
        let desc = AttentionDesc::new(dtype, 1, 2, 3, 4, shape).with_causal(true);
        run("attention_ext", Command::Attention(&desc));
    })
}

pub(super) fn decode(size: &Size) -> Family {
    attention(size, F32, 1)
}

pub(super) fn prefill(size: &Size) -> Family {
    attention(size, F32, 16)
}

pub(super) fn decode_f16(size: &Size) -> Family {
    attention(size, DType::F16, 1)
}
