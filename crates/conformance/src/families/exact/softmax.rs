//! Softmax and its logarithm over numbers that are either the maximum or −∞: the sum counts the former.

use backend_api::DType;
use backend_api::desc::SoftmaxDesc;

use super::{Exact, Model, Recipe, along, has_weight, told_apart};
use crate::families::{flag, layout::shape_name};
use crate::oracle::softmax::{log_softmax, softmax};
use crate::trial::Trial;
use crate::want::Want;

/// The lengths of the family's other cases, and those around which its kernels change.
const LENGTHS: [usize; 29] = [
    1, 2, 3, 4, 5, 7, 9, 13, 32, 33, 64, 65, 255, 256, 257, 300, 600, 1000, 1024, 1030, 4096, 4097, 8192,
    8200, 16_385, 30_000, 32_772, 33_000, 65_537,
];

/// The maximum, which any number may be.
const MAX: f64 = 2.5;

pub(super) fn recipes() -> Vec<Recipe> {
    let rows = LENGTHS.map(|length| [4, length, 1]);
    let alone = [4096, 8200, 33_000, 65_537].map(|length| [1, length, 1]);
    let columns = [7, 65, 257, 300, 4096, 8200, 33_000].map(|length| [1, length, 4]);
    let narrow = [300, 8200].map(|length| [2, length, 3]);
    let mut recipes = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for log in [false, true] {
            let shapes = rows.iter().chain(&columns).chain(&narrow);
            // The logarithms of longer sums fill too few numbers of f16.
            let fits = |shape: &&[usize; 3]| !log || dtype == DType::F32 || shape[1] <= 33_000;
            recipes.extend(shapes.filter(fits).map(|&shape| recipe(dtype, shape, log)));
        }
    }
    // A single slice, of which f16 couldn't tell every element.
    recipes
        .extend(alone.into_iter().flat_map(|shape| [false, true].map(|log| recipe(DType::F32, shape, log))));
    recipes
}

fn recipe(dtype: DType, shape: [usize; 3], log: bool) -> Recipe {
    let family = flag(log, "log_softmax", "softmax");
    Recipe::new(family, format!("{dtype}_{}", shape_name(&shape)), move |_| {
        let length = shape[1];
        let oracle = if log { log_softmax } else { softmax };
        let count = told_apart(dtype, length, |count| oracle(&vec![MAX; count]).swap_remove(0));
        let number = move |s: usize, i: usize| {
            if has_weight(s, length, count, i) { MAX } else { f64::NEG_INFINITY }
        };
        let numbers = move |s: usize| (0..length).map(|i| number(s, i)).collect::<Vec<f64>>();
        let model: Model = Box::new(move |times| {
            let slice = |s: usize| {
                let x = numbers(s);
                let sum: f64 = (0..length).filter(|&i| x[i] == MAX).map(times).sum();
                let result = |x: f64| match (x == MAX, log) {
                    (true, false) => 1.0 / sum,
                    (true, true) => -sum.ln(),
                    (false, false) => 0.0,
                    (false, true) => f64::NEG_INFINITY,
                };
                x.into_iter().map(result).collect()
            };
            along(shape, slice, 0.0)
        });
        let mut trial = Trial::new();
        trial.input("input", dtype, &along(shape, numbers, 0.0));
        trial.output("output", dtype, along(shape, |s| oracle(&numbers(s)), Want::number(0.0)));
        let trial = trial.calling(move |backend, p| {
            let desc = SoftmaxDesc::along(dtype, p[0], p[1], &shape, 1)?;
            backend.softmax(&if log { desc.with_log() } else { desc })
        });
        Exact { trial, length, models: vec![model] }
    })
}
