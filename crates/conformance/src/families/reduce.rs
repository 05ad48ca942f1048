//! `reduce`: every operation along every axis.

use backend_api::{DType, ReduceOp};

use crate::case::Case;
use crate::data::{Data, uniform};
use crate::float::round_to;
use crate::oracle::reduce::wants;
use crate::rng::Rng;
use crate::trial::Trial;

/// Shapes that are reduced along each of their axes.
const SHAPES: [&[usize]; 22] = [
    &[1],
    &[2],
    &[5],
    &[255],
    &[256],
    &[257],
    &[1025],
    &[0],
    &[3, 0, 4],
    &[7, 13],
    &[64, 64],
    &[65, 129],
    &[1, 300],
    &[300, 1],
    &[3, 1000],
    &[1000, 3],
    &[2, 3, 4, 5],
    &[33, 17, 65],
    &[5, 1, 7, 1, 3],
    &[2, 1, 2, 3, 2, 2, 3],
    &[2, 70_000],
    &[70_000, 2],
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for &op in ReduceOp::ALL {
        for shape in SHAPES {
            for axis in 0..shape.len() {
                cases.push(case(op, shape, axis, Kind::Numbers));
            }
        }
        cases.push(case(op, &[100_000], 0, Kind::Numbers));
        cases.push(case(op, &[100_003], 0, Kind::Numbers));
        cases.push(case(op, &[66, 1031], 1, Kind::Numbers));
        for shape in [&[9, 5], &[40, 257], &[65, 33]] {
            for axis in [0, 1] {
                cases.push(case(op, shape, axis, Kind::Integers));
                cases.push(case(op, shape, axis, Kind::Specials));
            }
        }
    }
    cases
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Numbers,
    /// Sums are exact.
    Integers,
    /// NaN, infinities and zeros of both signs here and there.
    Specials,
}

fn case(op: ReduceOp, shape: &'static [usize], axis: usize, kind: Kind) -> Case {
    let extents: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let kind_name = format!("{kind:?}").to_lowercase();
    let name = format!("{}_{}_axis{axis}_{kind_name}", op.name(), extents.join("x"));
    Case::new("reduce", name, move |rng| {
        let outer = shape[..axis].iter().product();
        let inner = shape[axis + 1..].iter().product();
        let length = shape[axis];
        let input = values(rng, op, kind, outer * length * inner, length);
        let exact = kind == Kind::Integers && matches!(op, ReduceOp::Sum);
        let mut trial = Trial::new();
        trial.input("input", DType::F32, &input);
        trial.output("output", DType::F32, wants(op, &input, [outer, length, inner], exact));
        if kind == Kind::Numbers {
            trial.with_nmse();
        }
        trial.calling(move |backend, ptrs| backend.reduce(op, ptrs[0], ptrs[1], shape, axis))
    })
}

fn values(rng: &mut Rng, op: ReduceOp, kind: Kind, n: usize, length: usize) -> Vec<f64> {
    let specials = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0];
    let mut values = match (kind, op) {
        (Kind::Integers, ReduceOp::Prod) => (0..n).map(|_| [1.0, -1.0, 2.0, 0.5][rng.below(4)]).collect(),
        (Kind::Integers, _) => Data::Integers.values(rng, DType::F32, n),
        // Factors so near to 1 that no partial product of any order leaves the normal range.
        (_, ReduceOp::Prod) => {
            let spread = 1.0 / (length.max(4) as f64).sqrt();
            let mut factor = || (spread * rng.uniform(-1.0, 1.0)).exp() * [1.0, -1.0][rng.below(2)];
            (0..n).map(|_| round_to(DType::F32, factor())).collect()
        }
        _ => uniform(rng, DType::F32, n, -1.0, 1.0),
    };
    if kind == Kind::Specials {
        for value in &mut values {
            if rng.one_in(length.max(2)) {
                *value = rng.pick(&specials);
            }
        }
    }
    values
}
