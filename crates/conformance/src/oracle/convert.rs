//! Conversions between element types.

use backend_api::DType;

use crate::float::round_to;
use crate::want::Want;

/// `x` as a number of `dtype`: rounded to nearest for floats; without its fraction, clamped, and 0 for NaN,
/// for integers.
pub(crate) fn convert(dtype: DType, x: f64) -> f64 {
    let clamp = |low: f64, high: f64| {
        if x.is_nan() { 0.0 } else { x.trunc().clamp(low, high) + 0.0 }
    };
    match dtype {
        DType::F32 | DType::F16 => round_to(dtype, x),
        DType::I32 => clamp(f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::U32 => clamp(0.0, f64::from(u32::MAX)),
        other => unimplemented!("a test of {other}"),
    }
}

/// [`convert`] as an exact result.
pub(crate) fn want(dtype: DType, x: f64) -> Want {
    Want::Exact(convert(dtype, x))
}
