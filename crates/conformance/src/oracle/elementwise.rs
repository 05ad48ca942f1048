//! Clamping and scaling of each element.

use backend_api::desc::{AffineDesc, ClampDesc};
use backend_api::{BackendResult, DType};

use super::convert::convert;
use super::expected::{Bytes, Expected};
use crate::float::{ROUNDING, is_subnormal, round_to};
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

pub(super) fn expect_clamp(
    op: &'static str,
    desc: &ClampDesc<'_>,
    memory: &Bytes,
) -> BackendResult<Expected> {
    let dtype = desc.output.dtype;
    let bounds = [desc.min, desc.max].map(|bound| convert(dtype, bound));
    let (_, loops) = desc.operands(op)?;
    Ok(Expected::of_each([desc.input, desc.output], &loops, memory, |x| {
        let zero = is_subnormal(dtype, x).then(|| clamp(0f64.copysign(x), bounds));
        clamp(x, bounds).or(zero)
    }))
}

pub(super) fn expect_affine(
    op: &'static str,
    desc: &AffineDesc<'_>,
    memory: &Bytes,
) -> BackendResult<Expected> {
    let factors = [desc.scale, desc.bias];
    let (_, loops) = desc.operands(op)?;
    // A subnormal input may be taken for zero.
    Ok(Expected::of_each([desc.input, desc.output], &loops, memory, |x| {
        let zero = is_subnormal(desc.input.dtype, x).then(|| affine(0.0, factors));
        affine(x, factors).or(zero)
    }))
}
