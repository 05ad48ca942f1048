//! Inputs.

use backend_api::DType;

use crate::float::round_to;
use crate::rng::Rng;

/// A kind of input for sums of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    /// Uniform in [−1, 1).
    Uniform,
    /// Small integers: every sum and product is exact, so the result is too.
    Integers,
    /// Small integers but 0, so that a term that is left out or taken twice shows.
    Whole,
    /// Magnitudes from 2⁻²⁰ to 2²⁰, so that big terms cancel and small ones remain.
    Cancelling,
}

impl Data {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Integers => "integers",
            Self::Whole => "whole",
            Self::Cancelling => "cancelling",
        }
    }

    /// `n` numbers of `dtype`.
    pub(crate) fn values(self, rng: &mut Rng, dtype: DType, n: usize) -> Vec<f64> {
        let mut value = || match self {
            Self::Uniform => rng.uniform(-1.0, 1.0),
            Self::Integers => rng.below(9) as f64 - 4.0,
            Self::Whole => (1.0 + rng.below(3) as f64) * rng.pick(&[1.0, -1.0]),
            Self::Cancelling => rng.uniform(-1.0, 1.0) * 2f64.powi(rng.below(41) as i32 - 20),
        };
        (0..n).map(|_| round_to(dtype, value())).collect()
    }
}

/// `n` numbers of `dtype` uniform in `[low, high)`.
pub(crate) fn uniform(rng: &mut Rng, dtype: DType, n: usize, low: f64, high: f64) -> Vec<f64> {
    (0..n).map(|_| round_to(dtype, rng.uniform(low, high))).collect()
}

/// Numbers with every special meaning, and the largest and smallest magnitudes.
pub(crate) const SPECIALS: [f64; 31] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    -1.5,
    2.5,
    -2.5,
    3.0,
    -3.0,
    10.0,
    -10.0,
    60.0,
    -60.0,
    90.0,
    -90.0,
    200.0,
    -200.0,
    1e4,
    -1e4,
    1e30,
    -1e30,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    f32::MAX as f64,
    f32::MIN as f64,
    f32::MIN_POSITIVE as f64,
    -1e-20,
];

/// Any number of a type, for operations that move bits: any integer; special floating-point numbers among others.
pub(crate) fn any_number(rng: &mut Rng, dtype: DType) -> f64 {
    match dtype {
        DType::I32 => f64::from((rng.next_u64() as u32).cast_signed()),
        DType::U32 => f64::from(rng.next_u64() as u32),
        _ if rng.one_in(8) => {
            let specials = specials(dtype);
            rng.pick(&specials)
        }
        _ => round_to(dtype, rng.uniform(-100.0, 100.0)),
    }
}

/// [`SPECIALS`] and subnormal numbers, as numbers of `dtype`.
pub(crate) fn specials(dtype: DType) -> Vec<f64> {
    let subnormal = crate::float::min_normal(dtype) / 4.0;
    let all = SPECIALS.iter().copied().chain([subnormal, -subnormal]);
    all.map(|x| round_to(dtype, x)).collect()
}
