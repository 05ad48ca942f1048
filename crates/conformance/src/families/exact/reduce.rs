//! Reductions: sums of ±1, norms and logarithms of numbers that count, products of −1, and maxima at every
//! place.

use backend_api::desc::{ReduceDesc, TensorDesc};
use backend_api::{DType, ReduceOp};

use super::{Exact, Model, Recipe, balanced, has_weight, told_apart};
use crate::families::{flag, layout::shape_name};
use crate::oracle::reduce::{reduce, slice, wants};
use crate::rng::Rng;
use crate::trial::Trial;

/// The lengths of the families' other cases, and those around which the kernel changes.
const LENGTHS: [usize; 34] = [
    1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 32, 33, 40, 64, 65, 129, 255, 256, 257, 300, 1000, 1024, 1025, 1031,
    4096, 4097, 8200, 16_385, 20_000, 32_772, 33_000, 65_537, 70_000, 100_003,
];
/// The longest for results in `to`: logarithms of longer sums aren't told apart, nor sums past the largest
/// f16.
fn longest(op: ReduceOp, to: DType) -> usize {
    match (op, to) {
        (ReduceOp::LogSumExp, DType::F16) => 8200,
        (ReduceOp::LogSumExp, _) => 70_000,
        (_, DType::F16) => 33_000,
        _ => usize::MAX,
    }
}

/// What counts. A sum of it lies beside midpoints of f16 and not on them, as whole numbers do, which round to
/// either side.
const WEIGHT: f64 = 1.5;

const OPS: [ReduceOp; 6] =
    [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::NormL1, ReduceOp::NormL2, ReduceOp::LogSumExp, ReduceOp::Prod];

pub(super) fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for op in OPS {
        for (i, length) in LENGTHS.into_iter().enumerate() {
            let mut push = |from: DType, to: DType, shape: [usize; 3]| {
                if length <= longest(op, to) {
                    recipes.push(recipe(op, from, to, shape));
                }
            };
            push(DType::F32, DType::F32, [4, length, 1]);
            push(DType::F16, DType::F16, [4, length, 1]);
            // Columns take turns.
            let from = [DType::F32, DType::F16, DType::F16][i % 3];
            let to = [DType::F32, DType::F16, DType::F32][i % 3];
            push(from, to, [1, length, 4]);
        }
        // One line, which is cut into the most parts.
        for length in [257, 1025, 20_000, 65_537] {
            recipes.push(recipe(op, DType::F32, DType::F32, [1, length, 1]));
        }
        recipes.push(recipe(op, DType::F32, DType::F32, [3, 300, 5]));
        recipes.push(recipe(op, DType::F16, DType::F32, [4, 20_000, 1]));
    }
    recipes
}

/// One slice's numbers.
fn numbers(rng: &mut Rng, op: ReduceOp, s: usize, length: usize, count: usize) -> Vec<f64> {
    let counted =
        |zero: f64| (0..length).map(move |i| if has_weight(s, length, count, i) { WEIGHT } else { zero });
    match op {
        // Of a size whose mean is no subnormal f16, which may be taken for zero.
        ReduceOp::Sum | ReduceOp::Mean => balanced(rng, length).into_iter().map(|x| 4.0 * x).collect(),
        ReduceOp::Prod => vec![-1.0; length],
        ReduceOp::LogSumExp => counted(f64::NEG_INFINITY).collect(),
        _ => counted(0.0).map(|x| x * rng.pick(&[1.0, -1.0])).collect(),
    }
}

fn recipe(op: ReduceOp, dtype: DType, to: DType, shape: [usize; 3]) -> Recipe {
    let widened = flag(dtype == to, "", "_to_f32");
    // The positional call is of f32.
    let classic = dtype == DType::F32;
    let family = flag(classic, "reduce", "reduce_ext");
    let name = format!("{}_{dtype}{widened}_{}", op.name(), shape_name(&shape));
    Recipe::new(family, name, move |rng| {
        let [outer, length, inner] = shape;
        let count = match op {
            ReduceOp::NormL1 | ReduceOp::NormL2 | ReduceOp::LogSumExp => {
                told_apart(to, length, |count| reduce(op, &vec![WEIGHT; count]))
            }
            _ => length,
        };
        let slices: Vec<Vec<f64>> = (0..outer * inner).map(|s| numbers(rng, op, s, length, count)).collect();
        let input = super::along(shape, |s| slices[s].clone(), 0.0);
        let mut trial = Trial::new();
        trial.input("input", dtype, &input);
        trial.output("output", to, wants(op, &input, shape, false));
        let trial = trial.calling(move |backend, p| {
            if classic {
                return backend.reduce(op, p[0], p[1], &shape, 1);
            }
            let mut desc = ReduceDesc::new(op, TensorDesc::packed(p[0], dtype, &shape), &[1], p[1]);
            desc.output_dtype = to;
            backend.reduce_ext(&desc)
        });
        let model: Model = Box::new(move |times| {
            let result = |s: usize| {
                let x = slice(&input, [s / inner, s % inner], length, inner);
                let sum = |map: fn(f64) -> f64| (0..length).map(|i| times(i) * map(x[i])).sum::<f64>();
                match op {
                    ReduceOp::Sum => sum(|x| x),
                    ReduceOp::Mean => sum(|x| x) / length as f64,
                    ReduceOp::NormL1 => sum(f64::abs),
                    ReduceOp::NormL2 => sum(|x| x * x).sqrt(),
                    ReduceOp::LogSumExp => WEIGHT + sum(|x| (x - WEIGHT).exp()).ln(),
                    _ => (0..length).map(|i| x[i].powf(times(i))).product(),
                }
            };
            (0..outer * inner).map(result).collect()
        });
        Exact { trial, length, models: vec![model] }
    })
}
