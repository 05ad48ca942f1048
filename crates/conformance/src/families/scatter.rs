//! `scatter`: every function and element type, repeated indices and those outside the table.

use backend_api::desc::{IndexShape, ScatterDesc};
use backend_api::{DType, ScatterOp};

use super::gather::{INDICES, Indices};
use crate::case::Case;
use crate::float::{MIN_NORMAL_F32, round_to};
use crate::grid::pairwise;
use crate::oracle::scatter::scattered;
use crate::rng::Rng;
use crate::trial::Trial;

const ROWS: [usize; 6] = [0, 1, 3, 50, 257, 600];
const COLUMNS: [usize; 7] = [0, 1, 2, 5, 8, 64, 301];
const COUNTS: [usize; 6] = [0, 1, 3, 64, 129, 1100];

pub(super) fn cases() -> Vec<Case> {
    let ops = ScatterOp::ALL;
    let counts = [ops.len(), 4, 4, ROWS.len(), COLUMNS.len(), COUNTS.len(), 3, 2];
    let grids = ["scatter 1", "scatter 2"].map(|seed| pairwise(&counts, seed));
    let covering = grids.into_iter().flatten().map(|row| {
        let (mut shape, per_element) = ([ROWS[row[3]], COLUMNS[row[4]], COUNTS[row[5]]], row[7] == 1);
        // The oracle and a column's search take their product as time.
        if shape[0] * shape[1] > 20_000 || shape[1] * shape[2] > 70_000 {
            shape[1] = 5;
        }
        if per_element && shape[2] > 129 {
            shape[2] = 130;
        }
        case(ops[row[0]], DType::ALL[row[1]], row[2], shape, INDICES[row[6]], per_element)
    });
    // More indices than 65,535, after which some drivers leave a loop.
    let long = [
        case(ScatterOp::Add, DType::U32, 1, [2, 3, 70_000], INDICES[0], false),
        case(ScatterOp::Add, DType::U32, 2, [2, 1, 70_000], INDICES[0], true),
        case(ScatterOp::Assign, DType::F16, 1, [3, 1, 140_000], INDICES[0], false),
    ];
    // As appended to a cache, and what replaces itself; f32 into f16 and the other way round.
    let types = [[DType::F16, DType::F32], [DType::F32, DType::F16], [DType::F16; 2], [DType::U32; 2]];
    let shapes = [[64, 5, 1], [700, 8, 40], [3, 64, 5], [50, 3, 64], [257, 1, 129]];
    let assigned = types.into_iter().flat_map(|types| {
        let cases = shapes.into_iter().zip(INDICES.into_iter().cycle()).zip(1..);
        cases.flat_map(move |((shape, indices), outer)| {
            [false, true].map(|each| assigning(types, outer % 3 + 1, shape, indices, each))
        })
    });
    // Few wide rows beside the table's, whose elements find their places themselves: of a table and of several, and more
    // than one launch combines.
    let few = ops.iter().flat_map(|&op| {
        let shapes = [[600, 65, 200], [64, 300, 31], [40, 1030, 3]];
        let cases = shapes.into_iter().zip(INDICES.into_iter().cycle()).zip(1..);
        cases.flat_map(move |((shape, indices), outer)| {
            DType::ALL.map(|dtype| case(op, dtype, outer % 3 + 1, shape, indices, false))
        })
    });
    let many = [ScatterOp::Add, ScatterOp::Max, ScatterOp::Assign]
        .map(|op| case(op, DType::F32, 1, [8200, 64, 4100], INDICES[0], false));
    covering.chain(long).chain(assigned).chain(few).chain(many).collect()
}

fn number(rng: &mut Rng, dtype: DType) -> f64 {
    match dtype {
        DType::I32 => f64::from((rng.next_u64() as u32).cast_signed()),
        DType::U32 => f64::from(rng.next_u64() as u32),
        _ if rng.one_in(40) => rng.pick(&[f64::NAN, f64::INFINITY, -0.0, 0.0]),
        _ => round_to(dtype, rng.uniform(-4.0, 4.0)),
    }
}

/// A number whose products with many others stay where every type has them.
fn factor(rng: &mut Rng, dtype: DType) -> f64 {
    match dtype {
        DType::I32 | DType::U32 => number(rng, dtype),
        _ if rng.one_in(200) => rng.pick(&[f64::NAN, f64::INFINITY, -0.0, 0.0]),
        _ => rng.pick(&[1.0, -1.0, 1.0, 1.0625, 0.9375]),
    }
}

/// Whether a partial product of what arrives vanishes: an overflow or a flushed product may come before a
/// factor that undoes it.
fn vanishes(before: f64, arriving: &[f64]) -> bool {
    let partial = arriving.iter().scan(before, |product, x| {
        *product *= x;
        Some(*product)
    });
    partial.filter(|&x| x != 0.0).any(|x| x.abs() <= MIN_NORMAL_F32)
}

/// What is assigned, of the types of table and source.
fn assigning(
    types: [DType; 2],
    outer: usize,
    shape: [usize; 3],
    indices: Indices,
    per_element: bool,
) -> Case {
    typed(ScatterOp::Assign, types, outer, shape, indices, per_element)
}

fn case(
    op: ScatterOp,
    dtype: DType,
    outer: usize,
    shape: [usize; 3],
    indices: Indices,
    per_element: bool,
) -> Case {
    typed(op, [dtype; 2], outer, shape, indices, per_element)
}

fn typed(
    op: ScatterOp,
    [dtype, source_dtype]: [DType; 2],
    outer: usize,
    [rows, columns, count]: [usize; 3],
    indices: Indices,
    per_element: bool,
) -> Case {
    let (kind, op_name) = (indices.name(), op.name());
    let each = super::flag(per_element, "elements", "rows");
    let from = if source_dtype == dtype { String::new() } else { format!("_from_{source_dtype}") };
    let name = format!(
        "{op_name}_{dtype}{from}_outer{outer}_rows{rows}_columns{columns}_count{count}_{kind}_{each}"
    );
    Case::new("scatter", name, move |rng| {
        let table: Vec<f64> = (0..outer * rows * columns).map(|_| number(rng, dtype)).collect();
        let arriving = outer * count * columns;
        let source: Vec<f64> = (0..arriving)
            .map(|_| if op == ScatterOp::Mul { factor(rng, dtype) } else { number(rng, source_dtype) })
            .collect();
        let chosen: Vec<f64> =
            (0..if per_element { arriving } else { count }).map(|_| indices.one(rng, rows)).collect();
        let mut lists: Vec<Vec<f64>> = vec![Vec::new(); table.len()];
        for (at, &x) in source.iter().enumerate() {
            let (o, i, c) = (at / columns / count, at / columns % count, at % columns);
            let index = chosen[if per_element { at } else { i }];
            if index >= 0.0 && index < rows as f64 {
                let x = if source_dtype == dtype { x } else { round_to(dtype, x) };
                lists[(o * rows + index as usize) * columns + c].push(x);
            }
        }
        let is_product = op == ScatterOp::Mul && dtype.is_float();
        let vanish = |(before, list): (&f64, &Vec<f64>)| vanishes(*before, list);
        assert!(!is_product || !table.iter().zip(&lists).any(vanish), "factors whose products vanish");
        let wants = lists
            .iter()
            .enumerate()
            .filter_map(|(at, list)| Some((at, scattered(op, dtype, table[at], list)?)));
        let places = wants.collect();
        let mut trial = Trial::new();
        trial.scattered("table", dtype, table, places);
        trial.input("indices", indices.dtype(), &chosen);
        trial.input("source", source_dtype, &source);
        trial.calling(move |backend, p| {
            let desc = ScatterDesc::new(op, dtype, p[0], p[1], p[2], IndexShape { rows, columns, count })
                .with_source_dtype(source_dtype)
                .with_outer(outer);
            backend.scatter(&if per_element { desc.with_per_element() } else { desc })
        })
    })
}
