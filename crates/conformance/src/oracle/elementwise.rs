//! Clamping and scaling of each element.

use backend_api::DType;

use crate::float::{ROUNDING, round_to};
use crate::want::Want;

/// `x` between bounds, which are numbers of its type. A lower bound above the upper one gives the upper one.
pub(crate) fn clamp(x: f64, [low, high]: [f64; 2]) -> Want {
    if x.is_nan() { Want::Exact(x) } else { Want::number(x.max(low).min(high)) }
}

/// `scale · x + bias`: a product and a sum, fused or not.
pub(crate) fn affine(x: f64, factors: [f64; 2]) -> Want {
    let [scale, bias] = factors.map(|number| round_to(DType::F32, number));
    let (product, value) = (scale * x, scale * x + bias);
    let bound = ROUNDING * (product.abs() + value.abs());
    Want::near(value, if value.is_finite() { bound } else { 0.0 })
}
