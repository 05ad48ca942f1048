//! `top_k`: few and all of short and long rows, of every element type, with many equal numbers and NaN.

use backend_api::DType;
use backend_api::desc::{SoftmaxOver, TopKDesc};

use crate::case::Case;
use crate::data::specials;
use crate::float::round_to;
use crate::oracle::softmax::{places, probabilities};
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

/// Rows, columns and how many are looked for. A workgroup sorts 1024, or counts the places of 512.
const SHAPES: [[usize; 3]; 30] = [
    [0, 5, 2],
    [3, 0, 0],
    [3, 5, 0],
    [1, 1, 1],
    [4, 2, 1],
    [7, 3, 3],
    [5, 31, 4],
    [2, 64, 64],
    [300, 10, 3],
    [7, 128, 8],
    [3, 257, 9],
    [2, 300, 300],
    [3, 512, 40],
    [3, 513, 4],
    [3, 1000, 1000],
    [2, 1024, 7],
    [2, 1025, 1],
    [1, 1025, 1025],
    [3, 2048, 512],
    [2, 2049, 513],
    [1, 3000, 1500],
    [2, 3073, 2049],
    [1, 4097, 4097],
    [1, 5000, 1024],
    [1, 5121, 1025],
    [2, 7000, 40],
    [1, 9000, 511],
    [1, 20_000, 20_000],
    [1, 70_001, 50],
    [1, 70_001, 3000],
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, &shape) in SHAPES.iter().enumerate() {
        for (j, dtype) in DType::ALL.into_iter().enumerate() {
            // Long rows are sorted alike whatever they hold.
            if shape[1] > 9000 && (i + j) % 2 == 1 {
                continue;
            }
            for largest in [false, true] {
                let values = if (i + j) % 3 != 0 { Values::Numbers } else { Values::None };
                cases.push(case(dtype, shape, largest, values));
                if dtype.is_float() {
                    cases.extend(
                        [SoftmaxOver::Found, SoftmaxOver::Row]
                            .map(|over| case(dtype, shape, largest, Values::Probabilities(over))),
                    );
                }
            }
        }
    }
    cases
}

/// Numbers of which many are equal, with every special one.
fn numbers(rng: &mut Rng, dtype: DType, n: usize) -> Vec<f64> {
    let specials = specials(dtype);
    let number = |rng: &mut Rng| match dtype {
        DType::I32 if rng.one_in(4) => rng.pick(&[f64::from(i32::MIN), f64::from(i32::MAX), -1.0, 0.0]),
        DType::I32 => rng.uniform(-200.0, 200.0).floor(),
        DType::U32 if rng.one_in(4) => rng.pick(&[0.0, 1.0, f64::from(u32::MAX), 2_147_483_648.0]),
        DType::U32 => rng.uniform(0.0, 400.0).floor(),
        _ if rng.one_in(5) => rng.pick(&specials),
        _ if rng.one_in(2) => rng.uniform(-20.0, 20.0).floor(),
        _ => rng.uniform(-20.0, 20.0),
    };
    (0..n).map(|_| round_to(dtype, number(rng))).collect()
}

/// What is written besides the indices.
#[derive(Clone, Copy)]
enum Values {
    None,
    Numbers,
    Probabilities(SoftmaxOver),
}

fn case(dtype: DType, [rows, columns, k]: [usize; 3], largest: bool, values: Values) -> Case {
    let kind = super::flag(largest, "largest", "smallest");
    let written = match values {
        Values::None => "indices",
        Values::Numbers => "values",
        Values::Probabilities(SoftmaxOver::Row) => "softmax_of_row",
        Values::Probabilities(_) => "softmax",
    };
    Case::new("top_k", format!("{dtype}_rows{rows}_columns{columns}_k{k}_{kind}_{written}"), move |rng| {
        let mut input = numbers(rng, dtype, rows * columns);
        if matches!(values, Values::Probabilities(_)) {
            // Half of the rows without what makes all of them NaN.
            for row in input.chunks_exact_mut(columns.max(1)).step_by(2) {
                row.iter_mut().filter(|x| !x.is_finite() || x.abs() > 1000.0).for_each(|x| *x = -1.5);
            }
        }
        let mut found = Vec::new();
        let mut sorted = Vec::new();
        for row in input.chunks_exact(columns.max(1)) {
            let places = &places(row, largest)[..k];
            found.extend(places.iter().map(|&place| Want::Exact(place as f64)));
            match values {
                Values::Probabilities(over) => sorted.extend(probabilities(row, places, over)),
                _ => sorted.extend(places.iter().map(|&place| Want::Exact(row[place]))),
            }
        }
        let mut trial = Trial::new();
        trial.input("input", dtype, &input);
        trial.output("indices", DType::I32, found);
        let is_written = !matches!(values, Values::None);
        if is_written {
            trial.output("values", dtype, sorted);
        }
        trial.calling(move |backend, p| {
            let mut desc = TopKDesc::new(dtype, p[0], p[1], rows, columns, k);
            desc.largest = largest;
            desc.values = is_written.then(|| p[2]);
            if let Values::Probabilities(over) = values {
                desc = desc.with_softmax(over);
            }
            backend.top_k(&desc)
        })
    })
}
