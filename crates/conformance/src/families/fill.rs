//! `fill`: every element type, values that need rounding or clamping; exact.

use backend_api::DType;

use crate::case::Case;
use crate::oracle::convert::want;
use crate::trial::Trial;

const LENGTHS: [usize; 9] = [0, 1, 2, 3, 5, 64, 257, 1001, 70_001];
const VALUES: [f64; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    2.75,
    1e6,
    -3e9,
    5e9,
    1e300,
    1e-300,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        cases.extend(LENGTHS.map(|n| case(dtype, n, -2.5)));
        cases.extend(VALUES.map(|value| case(dtype, 7, value)));
        // Half-way between two f16 numbers but for a bit that f32 doesn't have: rounding twice goes wrong.
        cases.push(case(dtype, 7, 1.0 + 2f64.powi(-11) + 2f64.powi(-40)));
    }
    cases
}

fn case(dtype: DType, n: usize, value: f64) -> Case {
    Case::new("fill", format!("{dtype}_n{n}_{value:?}"), move |_| {
        let mut trial = Trial::new();
        trial.output("dst", dtype, vec![want(dtype, value); n]);
        trial.calling(move |backend, p| backend.fill(p[0], dtype, n, value))
    })
}
