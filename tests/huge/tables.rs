//! Tables and caches: lookups, scatters, and rows that are appended. A caller who divides a table, and doesn't know the
//! indices, has all of them looked up in each part.

use std::ops::Range;

use backend_api::desc::{
    GatherDesc, IndexShape, Matrix, QuantizeRowsDesc, RopeAppendDesc, RopeAppendShape, RopeDesc, RopeShape,
    RopeStyle, RopeTables, ScatterDesc,
};
use backend_api::kv::KvFormat;
use backend_api::{Command, DType, ScatterOp};

use super::family::Operand::{Items, Shared};
use super::family::{Buffer, Call, Family, Fill, Piece, Run, Size, along, buffer, numbers, results, words};

const F32: DType = DType::F32;

/// Indices into a table, equally many into each of its parts, in the order of these.
pub(super) struct Spread {
    pub(super) rows: usize,
    pub(super) in_part: usize,
    /// Indices of each part.
    pub(super) count: usize,
}

impl Spread {
    /// Of a table of rows of so many bytes.
    pub(super) fn new(size: &Size, rows: usize, row: usize, count: usize) -> Self {
        let in_part = (size.part / row).max(1);
        let last = rows - (rows - 1) / in_part * in_part;
        Self { rows, in_part, count: count.min(last) }
    }

    pub(super) fn parts(&self) -> usize {
        self.rows.div_ceil(self.in_part)
    }

    pub(super) fn total(&self) -> usize {
        self.parts() * self.count
    }

    pub(super) fn rows_of(&self, part: usize) -> usize {
        self.in_part.min(self.rows - part * self.in_part)
    }

    /// Index `i` in its part: no two of a part are equal.
    pub(super) fn local(&self, i: usize) -> usize {
        let (part, place) = (i / self.count, i % self.count);
        let rows = self.rows_of(part);
        // The first and the last row, and some between.
        if place == 0 { rows - 1 } else { (place - 1) * ((rows - 1) / self.count).max(1) }
    }

    pub(super) fn global(&self, i: usize) -> usize {
        i / self.count * self.in_part + self.local(i)
    }

    /// All indices, and for each part all of them by its own rows, with those of other parts outside.
    pub(super) fn lists(&self) -> [Vec<u32>; 2] {
        let all = 0..self.total();
        let of_part = |part: usize| {
            all.clone().map(move |i| if i / self.count == part { self.local(i) as u32 } else { u32::MAX })
        };
        [all.clone().map(|i| self.global(i) as u32).collect(), (0..self.parts()).flat_map(of_part).collect()]
    }

    /// Bytes of the second list with the indices that a part is called with: all of them, or its own alone.
    pub(super) fn indices(&self, part: usize, own: bool) -> Range<usize> {
        let all = part * self.total();
        let [first, count] = if own { [all + part * self.count, self.count] } else { [all, self.total()] };
        4 * first..4 * (first + count)
    }

    /// Indices that are looked at.
    pub(super) fn sampled(&self) -> impl Iterator<Item = usize> {
        let total = self.total();
        (0..total).step_by((total / 12).max(1)).chain([total - 1])
    }
}

/// A family of a table in buffer 0 with rows of `row` bytes, the indices in buffers 1 and 2, and operands with some
/// bytes for each index. `make` is given the rows of the table and the number of indices; its operands are the table,
/// the indices, and the others.
fn indexed(
    spread: &Spread,
    mut family: Family,
    row: usize,
    others: &[(usize, usize)],
    make: impl Fn(usize, usize, Run<'_>) + Clone + 'static,
) -> Family {
    let call = |table: Piece, indices: Piece, first: usize, rows: usize, count: usize| {
        let mut operands = vec![vec![table], vec![indices]];
        operands.extend(
            others
                .iter()
                .map(|&(buffer, bytes)| vec![Piece::Part(buffer, first * bytes..(first + count) * bytes)]),
        );
        let make = make.clone();
        Call::new(operands, move |run| make(rows, count, run))
    };
    let total = spread.total();
    family.whole =
        call(Piece::Part(0, 0..spread.rows * row), Piece::Part(1, 0..4 * total), 0, spread.rows, total);
    for part in 0..spread.parts() {
        let (first, rows) = (part * spread.in_part, spread.rows_of(part));
        let table = Piece::Part(0, first * row..(first + rows) * row);
        let [all, own] = [false, true].map(|own| Piece::Part(2, spread.indices(part, own)));
        family.parts.push(call(table.clone(), all, 0, rows, total));
        family.known.push(call(table, own, part * spread.count, rows, spread.count));
    }
    for i in spread.sampled() {
        let at = spread.global(i);
        let table = Piece::Part(0, at * row..(at + 1) * row);
        family.samples.push(call(table, Piece::Given(vec![0; 4]), i, 1, 1));
    }
    family
}

/// Without a call yet.
fn empty(buffers: Vec<Buffer>) -> Family {
    Family::new(buffers, Call::new(Vec::new(), |_| ()))
}

/// A family of rows of a large table by so many indices for each part, with a row of a matrix for each index.
fn indexed_rows(
    size: &Size,
    indices: usize,
    matrix: fn(usize) -> Buffer,
    make: impl Fn(IndexShape, Run<'_>) + Clone + 'static,
) -> Family {
    let columns = size.columns();
    let (rows, row) = (size.numbers() / columns, 4 * columns);
    let spread = Spread::new(size, rows, row, indices);
    let [global, local] = spread.lists();
    let buffers =
        vec![numbers(rows * columns), words(&global), words(&local), matrix(spread.total() * columns)];
    indexed(&spread, empty(buffers), row, &[(3, row)], move |rows, count, run| {
        make(IndexShape { rows, columns, count }, run);
    })
}

pub(super) fn gather(size: &Size) -> Family {
    indexed_rows(size, 4000, results, |shape, run| {
        run("gather", Command::Gather(&GatherDesc::new(F32, 1, 2, 3, shape)));
    })
}

/// Many rows of a small table.
pub(super) fn gather_many(size: &Size) -> Family {
    let (rows, columns) = (100, size.columns());
    let items = size.numbers() / columns;
    let indices: Vec<u32> = (0..items as u32).map(|i| i * 7 % 101).collect();
    let buffers = vec![numbers(rows * columns), words(&indices), results(items * columns)];
    let operands = [Shared(0), Items(1, 4), Items(2, 4 * columns)];
    along(size, buffers, items, 2, &operands, move |_, count, run| {
        let shape = IndexShape { rows, columns, count };
        run("gather", Command::Gather(&GatherDesc::new(F32, 1, 2, 3, shape)));
    })
}

fn scatter(size: &Size, op: ScatterOp) -> Family {
    indexed_rows(size, 500, numbers, move |shape, run| {
        run("scatter", Command::Scatter(&ScatterDesc::new(op, F32, 1, 2, 3, shape)));
    })
}

pub(super) fn scatter_assign(size: &Size) -> Family {
    scatter(size, ScatterOp::Assign)
}

pub(super) fn scatter_add(size: &Size) -> Family {
    scatter(size, ScatterOp::Add)
}

/// Keys and values of tokens, quantised into a large cache.
pub(super) fn quantize_rows(size: &Size) -> Family {
    let columns = size.columns();
    let row = columns / KvFormat::BLOCK * KvFormat::BLOCK_BYTES;
    let rows = size.bytes / row;
    let spread = Spread::new(size, rows, row, 500);
    let [global, local] = spread.lists();
    let buffers = vec![
        buffer(rows * row, Fill::Value(DType::U32, 0.0)),
        words(&global),
        words(&local),
        numbers(spread.total() * columns),
    ];
    indexed(&spread, empty(buffers), row, &[(3, 4 * columns)], move |rows, count, run| {
        let source = Matrix::new(3, F32, columns);
        let desc = QuantizeRowsDesc::new(source, 1, rows, columns, count).with_indices(2);
        run("quantize_rows", Command::QuantizeRows(&desc));
    })
}

const HEAD_DIM: usize = 64;
const POSITIONS: usize = 8;

/// Numbers for angles, of which the tables need not be those of one.
fn rope_tables() -> [super::family::Buffer; 2] {
    [numbers(POSITIONS * HEAD_DIM / 2), numbers(POSITIONS * HEAD_DIM / 2)]
}

/// Keys and values of tokens, rotated into a large cache.
pub(super) fn rope_append(size: &Size) -> Family {
    let (heads, kv_heads) = if size.is_large() { (32, 8) } else { (2, 1) };
    let [width, cached] = [(heads + 2 * kv_heads) * HEAD_DIM, 2 * kv_heads * HEAD_DIM];
    let rows = size.numbers() / cached;
    let spread = Spread::new(size, rows, 4 * cached, 500);
    let [global, local] = spread.lists();
    let positions: Vec<u32> = (0..spread.total()).map(|i| (i % POSITIONS) as u32).collect();
    let [cos, sin] = rope_tables();
    let buffers = vec![
        numbers(rows * cached),
        words(&global),
        words(&local),
        numbers(spread.total() * width),
        words(&positions),
        cos,
        sin,
    ];
    let tables = RopeTables { cos: 5, sin: 6, max_position: POSITIONS };
    let mut family = indexed(
        &spread,
        empty(buffers),
        4 * cached,
        &[(3, 4 * width), (4, 4)],
        move |cache_rows, count, run| {
            let shape = RopeAppendShape { rows: count, heads, kv_heads, head_dim: HEAD_DIM, cache_rows };
            let (qkv, cache) = (Matrix::new(3, F32, width), Matrix::new(1, F32, cached));
            let desc = RopeAppendDesc::new(qkv, cache, tables, shape, 4, 2);
            run("rope_append", Command::RopeAppend(&desc));
        },
    );
    let table = POSITIONS * HEAD_DIM / 2 * 4;
    let calls = [&mut family.whole].into_iter().chain(&mut family.parts).chain(&mut family.known);
    for call in calls.chain(&mut family.samples) {
        call.operands.extend([5, 6].map(|buffer| vec![Piece::Part(buffer, 0..table)]));
    }
    family
}

pub(super) fn rope(size: &Size) -> Family {
    let (heads, seq) = (2, POSITIONS);
    let elements = heads * seq * HEAD_DIM;
    let items = size.numbers() / elements;
    let [cos, sin] = rope_tables();
    let buffers = vec![numbers(items * elements), results(items * elements), cos, sin];
    let operands = [Items(0, 4 * elements), Items(1, 4 * elements), Shared(2), Shared(3)];
    along(size, buffers, items, 1, &operands, move |_, batch, run| {
        let tables = RopeTables { cos: 3, sin: 4, max_position: POSITIONS };
        let shape = RopeShape { batch, heads, seq, head_dim: HEAD_DIM };
        run("rope", Command::Rope(&RopeDesc::new(F32, 1, 2, tables, shape, RopeStyle::Half)));
    })
}
