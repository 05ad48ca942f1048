//! `gather`: repeated indices and those outside the table; exact.

use backend_api::DType;
use backend_api::desc::{GatherDesc, IndexShape};

use crate::case::Case;
use crate::float::round_to;
use crate::grid::pairwise;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

const ROWS: [usize; 5] = [0, 1, 3, 50, 257];
const COLUMNS: [usize; 9] = [0, 1, 2, 3, 5, 8, 31, 64, 385];
const COUNTS: [usize; 7] = [0, 1, 2, 3, 64, 129, 1000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Indices {
    /// Within the table, so that many repeat.
    Inside,
    /// Many past its end.
    Past,
    /// Signed, many negative.
    Signed,
}

impl Indices {
    /// Some index of this kind.
    pub(super) fn one(self, rng: &mut Rng, rows: usize) -> f64 {
        match self {
            Self::Inside => rng.below(rows.max(1)) as f64,
            Self::Past if rng.one_in(9) => f64::from(u32::MAX),
            Self::Past => rng.below(rows + 3) as f64,
            Self::Signed if rng.one_in(9) => f64::from(i32::MIN),
            Self::Signed => rng.below(rows + 6) as f64 - 3.0,
        }
    }

    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    pub(super) const fn dtype(self) -> DType {
        if matches!(self, Self::Signed) { DType::I32 } else { DType::U32 }
    }
}

pub(super) const INDICES: [Indices; 3] = [Indices::Inside, Indices::Past, Indices::Signed];

pub(super) fn cases() -> Vec<Case> {
    let counts = [4, ROWS.len(), COLUMNS.len(), COUNTS.len(), 3];
    let grids = ["gather 1", "gather 2", "gather 3"].map(|seed| pairwise(&counts, seed));
    let covering = grids.into_iter().flatten().map(|row| {
        let shape = [ROWS[row[1]], COLUMNS[row[2]], COUNTS[row[3]]];
        case(DType::ALL[row[0]], shape, INDICES[row[4]])
    });
    let large = DType::ALL.map(|dtype| case(dtype, [1000, 1, 70_000], Indices::Past));
    let grid = pairwise(&[4, 3, ROWS.len(), COLUMNS.len(), COUNTS.len(), 3, 2], "gather outer");
    let outer = grid.into_iter().map(|row| {
        let shape = [ROWS[row[2]], COLUMNS[row[3]].min(65), COUNTS[row[4]].min(64)];
        along_axis(DType::ALL[row[0]], row[1], shape, INDICES[row[5]], row[6] == 1)
    });
    covering.chain(large).chain(outer).collect()
}

/// Tables side by side, with an index for each row or for each element.
fn along_axis(dtype: DType, outer: usize, shape: [usize; 3], indices: Indices, per_element: bool) -> Case {
    let ([rows, columns, count], kind) = (shape, indices.name());
    let each = super::flag(per_element, "elements", "rows");
    let name = format!("{dtype}_outer{outer}_rows{rows}_columns{columns}_count{count}_{kind}_{each}");
    named(name, dtype, outer, shape, indices, per_element)
}

fn case(dtype: DType, shape: [usize; 3], indices: Indices) -> Case {
    let ([rows, columns, count], kind) = (shape, indices.name());
    let name = format!("{dtype}_rows{rows}_columns{columns}_count{count}_{kind}");
    named(name, dtype, 1, shape, indices, false)
}

fn named(
    name: String,
    dtype: DType,
    outer: usize,
    [rows, columns, count]: [usize; 3],
    indices: Indices,
    per_element: bool,
) -> Case {
    Case::new("gather", name, move |rng| {
        let table: Vec<f64> = (0..outer * rows * columns).map(|_| number(rng, dtype)).collect();
        let chosen: Vec<f64> = (0..if per_element { outer * count * columns } else { count })
            .map(|_| indices.one(rng, rows))
            .collect();
        let wants = (0..outer * count * columns).map(|at| {
            let (o, i, c) = (at / columns / count, at / columns % count, at % columns);
            let index = chosen[if per_element { at } else { i }];
            let inside = index >= 0.0 && index < rows as f64;
            Want::Exact(if inside { table[(o * rows + index as usize) * columns + c] } else { 0.0 })
        });
        let wants = wants.collect();
        let mut trial = Trial::new();
        trial.input("table", dtype, &table);
        trial.input("indices", indices.dtype(), &chosen);
        trial.output("output", dtype, wants);
        trial.calling(move |backend, p| {
            let desc = GatherDesc::new(dtype, p[0], p[1], p[2], IndexShape { rows, columns, count })
                .with_outer(outer);
            backend.gather(&if per_element { desc.with_per_element() } else { desc })
        })
    })
}

/// Any number of the type: a lookup moves bits.
fn number(rng: &mut Rng, dtype: DType) -> f64 {
    let word = rng.next_u64() as u32;
    match dtype {
        DType::I32 => f64::from(word as i32),
        DType::U32 => f64::from(word),
        _ if rng.one_in(8) => {
            let specials = crate::data::specials(dtype);
            rng.pick(&specials)
        }
        _ => round_to(dtype, rng.uniform(-100.0, 100.0)),
    }
}
