//! Quantised matrices that are large.

use std::ops::Range;

use backend_api::desc::{
    DequantizeDesc, ExpertMatmulDesc, Matrix, QuantGatherDesc, QuantMatmulDesc, QuantMatrix,
};
use backend_api::quant::{QuantFormat, QuantLayout};
use backend_api::{Command, DType};

use super::family::{Buffer, Call, Family, Fill, Piece, Size, buffer, numbers, places, results, words};
use super::tables::Spread;

const F32: DType = DType::F32;
const FORMAT: QuantFormat = QuantFormat::Q8_0;

fn layout(rows: usize, columns: usize) -> QuantLayout {
    QuantLayout::new("huge", FORMAT, rows, columns).expect("rows of whole blocks")
}

/// A quantised matrix that is a large operand.
#[derive(Clone, Copy)]
struct Large {
    rows: usize,
    columns: usize,
    layout: QuantLayout,
}

impl Large {
    fn new(size: &Size) -> Self {
        let columns = size.columns().max(128);
        // A scale of two bytes for 32 weights.
        Self::of_rows(size.bytes / (columns / 32 * 34), columns)
    }

    fn of_rows(rows: usize, columns: usize) -> Self {
        Self { rows, columns, layout: layout(rows, columns) }
    }

    fn buffer(&self) -> Buffer {
        buffer(self.layout.bytes, Fill::Quants(self.layout.scales.offset))
    }

    fn all(&self, number: usize) -> Vec<Piece> {
        vec![Piece::Part(number, 0..self.layout.bytes)]
    }

    /// `each` rows from each of these on as a matrix of their own.
    fn rows_of(&self, number: usize, firsts: &[usize], each: usize) -> Vec<Piece> {
        let count = firsts.len() * each;
        let small = layout(count, self.columns);
        let (mut pieces, mut end) = (Vec::new(), 0);
        for (plane, to) in [(self.layout.quants, small.quants), (self.layout.scales, small.scales)] {
            pieces.push(Piece::Given(vec![0; to.offset - end]));
            pieces.extend(firsts.iter().map(|first| {
                let start = plane.offset + first * plane.row_bytes;
                Piece::Part(number, start..start + each * plane.row_bytes)
            }));
            end = to.offset + count * to.row_bytes;
        }
        pieces.push(Piece::Given(vec![0; small.bytes - end]));
        pieces
    }

    /// Memory of the matrix as one of fewer rows, which aren't its own.
    fn part(&self, number: usize, rows: usize, part: usize, parts: usize) -> Vec<Piece> {
        let bytes = layout(rows, self.columns).bytes;
        let start = (self.layout.bytes / parts * part).min(self.layout.bytes - bytes) / 256 * 256;
        vec![Piece::Part(number, start..start + bytes)]
    }
}

/// Pieces of rows of a matrix of f32 with `ld` columns.
fn columns_of(buffer: usize, rows: Range<usize>, ld: usize, first: usize, count: usize) -> Vec<Piece> {
    let row = |row: usize| Piece::Part(buffer, 4 * (row * ld + first)..4 * (row * ld + first + count));
    rows.map(row).collect()
}

/// A product with a few or some rows.
fn product(size: &Size, m: usize) -> Family {
    let b = Large::new(size);
    // Rows of A and C aren't divided.
    let m = m.min(size.part / (4 * b.rows)).max(1);
    let (k, in_part) = (b.columns, (size.part / (b.columns / 32 * 34)).max(1));
    let call = |n: usize, b: Vec<Piece>, c: Vec<Piece>, offset: usize, ld: usize| {
        Call::new(vec![vec![Piece::Part(0, 0..4 * m * k)], b, c], move |run| {
            let c = Matrix::new(3, F32, ld).with_offset(offset);
            let desc = QuantMatmulDesc::new(m, Matrix::new(1, F32, k), QuantMatrix::new(2, FORMAT, n, k), c);
            run("quant_matmul", Command::QuantMatmul(&desc));
        })
    };
    let c = || vec![Piece::Part(2, 0..4 * m * b.rows)];
    let parts = b.rows.div_ceil(in_part);
    let part = |part: usize| {
        let first = part * in_part;
        let n = in_part.min(b.rows - first);
        call(n, b.part(1, n, part, parts), c(), first, b.rows)
    };
    let sample =
        |first: usize| call(3, b.rows_of(1, &[first], 3), columns_of(2, 0..m, b.rows, first, 3), 0, 3);
    let buffers = vec![numbers(m * k), b.buffer(), results(m * b.rows)];
    Family {
        parts: (0..parts).map(part).collect(),
        samples: places(b.rows, in_part, 3).into_iter().map(sample).collect(),
        ..Family::new(buffers, call(b.rows, b.all(1), c(), 0, b.rows))
    }
}

pub(super) fn one_row(size: &Size) -> Family {
    product(size, 1)
}

pub(super) fn some_rows(size: &Size) -> Family {
    product(size, 24)
}

/// Experts in a large stack, two of which each token chooses among neighbours.
pub(super) fn experts(size: &Size) -> Family {
    let (columns, used, of_part) = (size.columns().max(128), 2, 8);
    let parts = size.parts();
    let (experts, tokens) = (of_part * parts, of_part * parts);
    let n = (size.bytes / (columns / 32 * 34) / experts).min(100_000);
    let b = Large::of_rows(n * experts, columns);
    // Token i of a part has its experts i and i + 3.
    let choice = |i: usize, first: usize| [first + i % of_part, first + (i + 3) % of_part];
    let chosen: Vec<u32> =
        (0..tokens).flat_map(|i| choice(i, i / of_part * of_part)).map(|expert| expert as u32).collect();
    // For each part all tokens, with the experts of others outside.
    let of_parts: Vec<u32> = (0..parts * tokens)
        .flat_map(|i| {
            let (part, token) = (i / tokens, i % tokens);
            let is_own = token / of_part == part;
            choice(token, 0).map(|expert| if is_own { expert as u32 } else { u32::MAX })
        })
        .collect();
    let call = move |[rows, experts, n]: [usize; 3], operands: Vec<Vec<Piece>>, accumulate: bool| {
        Call::new(operands, move |run| {
            let (a, c) = (Matrix::new(1, F32, columns), Matrix::new(4, F32, n));
            let b = QuantMatrix::new(2, FORMAT, experts * n, columns);
            let desc = ExpertMatmulDesc::new([rows, used, experts], a, b, 3, c);
            run("expert_matmul", Command::ExpertMatmul(&desc.with_accumulate(accumulate)));
        })
    };
    let of_tokens = |first: usize, count: usize| {
        let part =
            |buffer: usize, item: usize| vec![Piece::Part(buffer, first * item..(first + count) * item)];
        [part(0, 4 * columns), part(4, 4 * used * n)]
    };
    let [a, c] = of_tokens(0, tokens);
    let indices = vec![Piece::Part(2, 0..4 * used * tokens)];
    let whole = call([tokens, experts, n], vec![a, b.all(1), indices, c], false);
    let part = |number: usize, own: bool| {
        let [first, count] = if own { [number * of_part, of_part] } else { [0, tokens] };
        let [a, c] = of_tokens(first, count);
        let index = 4 * used * (number * tokens + first);
        let indices = vec![Piece::Part(3, index..index + 4 * used * count)];
        // Without the knowledge of who has which expert, each part adds its own to those of the others.
        call([count, of_part, n], vec![a, b.part(1, of_part * n, number, parts), indices, c], !own)
    };
    let sample = |token: usize| {
        let (first, count) = (token * 97 % (n - 7), 8);
        let [a, _] = of_tokens(token, 1);
        let rows = choice(token, token / of_part * of_part).map(|expert| expert * n + first);
        let indices = Piece::Given(bytemuck::cast_slice(&[0u32, 1]).to_vec());
        let c = columns_of(4, token * used..(token + 1) * used, n, first, count);
        call([1, used, count], vec![a, b.rows_of(1, &rows, count), vec![indices], c], false)
    };
    let buffers = vec![
        numbers(tokens * columns),
        b.buffer(),
        words(&chosen),
        words(&of_parts),
        results(tokens * used * n),
    ];
    Family {
        parts: (0..parts).map(|number| part(number, false)).collect(),
        known: (0..parts).map(|number| part(number, true)).collect(),
        samples: (0..tokens).step_by(3).chain([tokens - 1]).map(sample).collect(),
        ..Family::new(buffers, whole)
    }
}

pub(super) fn dequantize(size: &Size) -> Family {
    let columns = size.columns().max(128);
    let large = Large::of_rows(size.numbers() / columns, columns);
    let in_part = size.part / (4 * columns);
    let call = |rows: usize, input: Vec<Piece>, first: usize| {
        let output = vec![Piece::Part(1, 4 * columns * first..4 * columns * (first + rows))];
        Call::new(vec![input, output], move |run| {
            let output = Matrix::new(2, F32, columns);
            let desc = DequantizeDesc::new(QuantMatrix::new(1, FORMAT, rows, columns), output);
            run("dequantize", Command::Dequantize(&desc));
        })
    };
    let parts = large.rows.div_ceil(in_part);
    let part = |part: usize| {
        let rows = in_part.min(large.rows - part * in_part);
        call(rows, large.part(0, rows, part, parts), part * in_part)
    };
    let sample = |first: usize| call(1, large.rows_of(0, &[first], 1), first);
    Family {
        parts: (0..parts).map(part).collect(),
        samples: places(large.rows, in_part, 1).into_iter().map(sample).collect(),
        ..Family::new(vec![large.buffer(), results(large.rows * columns)], call(large.rows, large.all(0), 0))
    }
}

pub(super) fn gather(size: &Size) -> Family {
    let table = Large::new(size);
    let columns = table.columns;
    let spread = Spread::new(size, table.rows, columns / 32 * 34, 2000);
    let call = |rows: usize, table: Vec<Piece>, indices: Piece, first: usize, count: usize| {
        let output = vec![Piece::Part(3, 4 * columns * first..4 * columns * (first + count))];
        Call::new(vec![table, vec![indices], output], move |run| {
            let table = QuantMatrix::new(1, FORMAT, rows, columns);
            run("quant_gather", Command::QuantGather(&QuantGatherDesc::new(F32, table, 2, 3, count)));
        })
    };
    let total = spread.total();
    let part = |part: usize, own: bool| {
        let rows = spread.rows_of(part);
        let [first, count] = if own { [part * spread.count, spread.count] } else { [0, total] };
        let indices = Piece::Part(2, spread.indices(part, own));
        call(rows, table.part(0, rows, part, spread.parts()), indices, first, count)
    };
    let sample = |i: usize| {
        let row = spread.global(i);
        call(1, table.rows_of(0, &[row], 1), Piece::Given(vec![0; 4]), i, 1)
    };
    let [global, local] = spread.lists();
    let buffers = vec![table.buffer(), words(&global), words(&local), results(total * columns)];
    Family {
        parts: (0..spread.parts()).map(|number| part(number, false)).collect(),
        known: (0..spread.parts()).map(|number| part(number, true)).collect(),
        samples: spread.sampled().map(sample).collect(),
        ..Family::new(buffers, call(table.rows, table.all(0), Piece::Part(1, 0..4 * total), 0, total))
    }
}
