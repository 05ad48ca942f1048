//! Functions of one number.

use backend_api::desc::UnaryDesc;
use backend_api::{Activation, BackendResult, DType, UnaryOp};

use super::expected::{Bytes, Expected};
use crate::float::{MIN_NORMAL_F32, ROUNDING, is_subnormal, ulp_f32};
use crate::want::Want;

/// The relative error of a division, 2.5 units in the last place.
const DIVISION: f64 = 2.5 * ROUNDING;

/// `op(x)` for an `x` of `dtype`, with the function's usual parameters; a subnormal `x` may count as zero.
pub(crate) fn unary(op: UnaryOp, x: f64, dtype: DType) -> Want {
    unary_with(op, op.default_parameters(), x, dtype)
}

/// `op(x)` for an `x` of `dtype` with parameters α and β; a subnormal `x` may count as zero.
pub(crate) fn unary_with(op: UnaryOp, parameters: [f64; 2], x: f64, dtype: DType) -> Want {
    let parameters = parameters.map(|x| f64::from(x as f32));
    let want = with_parameters(op, parameters, x);
    let zero = is_subnormal(dtype, x).then(|| with_parameters(op, parameters, 0f64.copysign(x)));
    want.or(zero)
}

/// The relative error that is promised of functions which WGSL doesn't have, or not accurately enough, in
/// units of the last place.
const OWN: f64 = 8.0;

/// Functions with parameters: those of [`function`] are left to it.
pub(super) fn with_parameters(op: UnaryOp, [a, b]: [f64; 2], x: f64) -> Want {
    let within_ulps = |value: f64, ulps: f64| Want::near(value, ulps * ulp_f32(value));
    // Two products, and where x/α is rounded, an error that eᵗ − 1 doesn't magnify for a negative t.
    let elu = |t: f64, factor: f64| within_ulps(factor * t.exp_m1(), OWN + 4.5);
    match op {
        _ if op.parameters() == 0 => function(op, x),
        _ if x.is_nan() => Want::Exact(f64::NAN),
        UnaryOp::Elu | UnaryOp::Celu if x >= 0.0 => Want::number(x),
        UnaryOp::Elu => elu(x, a),
        UnaryOp::Celu => elu(x / a, a),
        UnaryOp::Selu if x >= 0.0 => within_ulps(b * x, 1.0),
        UnaryOp::Selu => elu(x, a * b),
        UnaryOp::LeakyRelu if x >= 0.0 => Want::number(x),
        UnaryOp::LeakyRelu => within_ulps(a * x, 1.0),
        UnaryOp::ThresholdedRelu => Want::number(if x > a { x } else { 0.0 }),
        UnaryOp::Shrink if x < -a => within_ulps(x + b, 1.0),
        UnaryOp::Shrink if x > a => within_ulps(x - b, 1.0),
        UnaryOp::Shrink => Want::number(0.0),
        UnaryOp::HardSigmoid => Want::near((a * x + b).clamp(0.0, 1.0), gate_error(a, b, x)),
        UnaryOp::HardSwish => {
            let gate = (a * x + b).clamp(0.0, 1.0);
            if gate == 0.0 && (a * x + b < 0.0 || x.is_infinite()) {
                return Want::number(0.0);
            }
            let value = x * gate;
            let bound = x.abs() * gate_error(a, b, x) + ROUNDING * value.abs();
            Want::near(value, if value.is_finite() { bound } else { 0.0 })
        }
        // The product α·x is rounded, which the sigmoid magnifies as eᵗ does.
        UnaryOp::Swish => {
            let t = a * x;
            if t == f64::NEG_INFINITY {
                return Want::number(0.0);
            }
            let gate = sigmoid(t);
            let value = x * gate;
            let error = sigmoid_error(t) + gate * (ROUNDING * t.abs()).min(1.0);
            let bound = if t > 90.0 { 0.0 } else { x.abs() * error + ROUNDING * value.abs() };
            Want::Near { value, bound, flush_below: 2.0 * MIN_NORMAL_F32 * x.abs().max(1.0) }
        }
        other => unimplemented!("an oracle of {}", other.name()),
    }
}

/// The error of α·x + β where it isn't bounded: a product, which may be fused, and a sum.
fn gate_error(a: f64, b: f64, x: f64) -> f64 {
    let sum = a * x + b;
    let error = ROUNDING * ((a * x).abs() + sum.abs());
    if (-error..=1.0 + error).contains(&sum) { error } else { 0.0 }
}

/// An activation of a number that is only known to lie within `bound` of `x`. No activation is steeper than
/// 1.13, the maximum of GELU's derivative.
pub(crate) fn activation(activation: Activation, x: f64, bound: f64) -> Want {
    match activation.unary() {
        None => Want::near(x, bound),
        Some(op) => function(op, x).widened(1.13 * bound),
    }
}

/// The function's value, of a subnormal argument too.
pub(crate) fn function(op: UnaryOp, x: f64) -> Want {
    let within_ulps = |value: f64, ulps: f64| Want::near(value, ulps * ulp_f32(value));
    match op {
        _ if x.is_nan() => Want::Exact(f64::NAN),
        UnaryOp::Relu => Want::number(x.max(0.0)),
        UnaryOp::Abs => Want::Exact(x.abs()),
        UnaryOp::Neg => Want::Exact(-x),
        UnaryOp::Floor => Want::Exact(x.floor()),
        UnaryOp::Ceil => Want::Exact(x.ceil()),
        UnaryOp::Round => Want::Exact(x.round_ties_even()),
        UnaryOp::Sign => Want::Exact(if x == 0.0 { x } else { x.signum() }),
        UnaryOp::Trunc => Want::Exact(x.trunc()),
        // What follows is libm's, by the formulas of their f64 kernels.
        UnaryOp::Expm1 => within_ulps(libm::expm1(x), OWN),
        UnaryOp::Log1p => within_ulps(libm::log1p(x), OWN),
        UnaryOp::Erf => within_ulps(libm::erf(x), OWN),
        UnaryOp::Tan if x.is_infinite() => Want::Exact(f64::NAN),
        UnaryOp::Tan => within_ulps(libm::tan(x), 12.0),
        UnaryOp::Asin => within_ulps(libm::asin(x), OWN),
        UnaryOp::Acos => within_ulps(libm::acos(x), OWN),
        UnaryOp::Atan => within_ulps(libm::atan(x), OWN),
        UnaryOp::Sinh => within_ulps(libm::sinh(x), OWN),
        UnaryOp::Cosh => within_ulps(libm::cosh(x), OWN),
        UnaryOp::Asinh => within_ulps(libm::asinh(x), OWN),
        // libm takes some numbers far below 1 for their magnitudes.
        UnaryOp::Acosh if x < 1.0 => Want::Exact(f64::NAN),
        UnaryOp::Acosh => within_ulps(libm::acosh(x), OWN),
        UnaryOp::Atanh => within_ulps(libm::atanh(x), OWN),
        UnaryOp::Softplus => within_ulps(x.max(0.0) + libm::log1p((-x.abs()).exp()), OWN),
        UnaryOp::Softsign if x.is_infinite() => Want::Exact(x.signum()),
        UnaryOp::Softsign => within_ulps(x / (1.0 + x.abs()), 4.0),
        UnaryOp::Mish if x == f64::NEG_INFINITY => Want::number(0.0),
        UnaryOp::Mish => {
            let softplus = x.max(0.0) + libm::log1p((-x.abs()).exp());
            let value = if x.is_infinite() { x } else { x * libm::tanh(softplus) };
            let bound = 2.0 * OWN * ulp_f32(value);
            Want::Near { value, bound, flush_below: 2.0 * MIN_NORMAL_F32 * x.abs().max(1.0) }
        }
        UnaryOp::Exp => within_ulps(x.exp(), 3.0 + 2.0 * x.abs()),
        UnaryOp::Log => {
            let value = x.ln();
            let absolute = if (0.5..=2.0).contains(&x) { 2f64.powi(-21) } else { 0.0 };
            Want::near(value, absolute.max(3.0 * ulp_f32(value)))
        }
        // 1/inverseSqrt(x): the two errors of 2 and 2.5 units add up.
        UnaryOp::Sqrt => relative(x.sqrt(), 2.0 * ROUNDING + DIVISION),
        // IEEE 754 keeps the sign of a zero, many devices don't.
        UnaryOp::Rsqrt if x == 0.0 => {
            Want::Exact(f64::INFINITY).or(x.is_sign_negative().then_some(Want::Exact(f64::NEG_INFINITY)))
        }
        UnaryOp::Rsqrt => within_ulps(1.0 / x.sqrt(), 2.0),
        UnaryOp::Recip => within_ulps(1.0 / x, 2.5),
        UnaryOp::Square => within_ulps(x * x, 1.0),
        // The argument is reduced exactly enough up to 1,000 with a π of three parts.
        UnaryOp::Sin | UnaryOp::Cos if x.is_infinite() => Want::Exact(f64::NAN),
        UnaryOp::Sin => Want::near(x.sin(), 2f64.powi(-20)),
        UnaryOp::Cos => Want::near(x.cos(), 2f64.powi(-20)),
        UnaryOp::Sigmoid => Want::near(sigmoid(x), sigmoid_error(x)),
        UnaryOp::Tanh => Want::near(x.tanh(), tanh_error(x)),
        UnaryOp::Silu => silu(x),
        UnaryOp::Gelu => gelu(x),
        UnaryOp::GeluTanh => gelu_tanh(x),
        other => unimplemented!("an oracle of {}", other.name()),
    }
}

fn relative(value: f64, error: f64) -> Want {
    Want::near(value, if value.is_finite() { error * value.abs() } else { 0.0 })
}

/// The relative error of exp(x).
pub(crate) fn exp_error(x: f64) -> f64 {
    (3.0 + 2.0 * x.abs()) * ROUNDING
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// 1/(1 + e) or e/(1 + e) with e = exp(−|x|): the error of e counts once in each place, then an addition and
/// a division.
fn sigmoid_error(x: f64) -> f64 {
    let y = sigmoid(x);
    // From 90 on e is zero or infinite in f32, and the result exact or flushed.
    if x.abs() > 90.0 {
        return (1.0 - y).min(y);
    }
    y * (2.0 * exp_error(x) + ROUNDING + DIVISION)
}

/// (1 − e)/(1 + e) with e = exp(−2|x|), which a polynomial beats for small x: the error of e counts 2/(1 +
/// e)², then come a subtraction, an addition and a division.
fn tanh_error(x: f64) -> f64 {
    let e = (-2.0 * x.abs()).exp();
    // e vanishes beside 1 from here on.
    if x.abs() > 15.0 {
        return 1.0 - x.abs().tanh();
    }
    2.0 * e / (1.0 + e).powi(2) * exp_error(2.0 * x) + x.tanh().abs() * (2.0 * ROUNDING + DIVISION)
}

/// x·sigmoid(x); where the sigmoid is flushed or its denominator infinite, the product is zero.
fn silu(x: f64) -> Want {
    if x == f64::NEG_INFINITY {
        return Want::number(0.0);
    }
    let value = x * sigmoid(x);
    let bound = if x > 90.0 { 0.0 } else { x.abs() * sigmoid_error(x) + ROUNDING * value.abs() };
    Want::Near { value, bound, flush_below: 2.0 * MIN_NORMAL_F32 * x.abs().max(1.0) }
}

/// x/2·(1 + erf(z)), z = x/√2. The sum cancels for negative x, so the error of erf counts absolutely: 2⁻²¹
/// for the approximation (Abramowitz and Stegun 7.1.26 has 1.5e-7) and its roundings, and that of exp(−z²) in
/// erfc(z).
fn gelu(x: f64) -> Want {
    if x == f64::NEG_INFINITY {
        return Want::number(0.0);
    }
    let z = x.abs() / std::f64::consts::SQRT_2;
    let value = x / 2.0 * libm::erfc(-x / std::f64::consts::SQRT_2);
    // Far out erf is exactly ±1 in f32, and what is missing is erfc.
    let erf_error = if z > 5.6 { libm::erfc(z) } else { 2f64.powi(-21) + libm::erfc(z) * exp_error(z * z) };
    half_x_times(x, value, erf_error)
}

/// x/2·(1 + tanh(w)), w = √(2/π)·(x + 0.044715·x³): the error of tanh, and that of w (6 roundings) times
/// tanh's derivative.
fn gelu_tanh(x: f64) -> Want {
    if x == f64::NEG_INFINITY {
        return Want::number(0.0);
    }
    let w = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    // 1 + tanh(w) = 2·sigmoid(2w), which doesn't cancel.
    let value = x * sigmoid(2.0 * w);
    let error = if w.abs() > 15.0 {
        2.0 * sigmoid(-2.0 * w.abs())
    } else {
        tanh_error(w) + 6.0 * ROUNDING * w.abs() * (1.0 - w.tanh().powi(2))
    };
    half_x_times(x, value, error)
}

/// The value x/2·f, f known to within `error`, with the roundings of the sum in f and of the product.
fn half_x_times(x: f64, value: f64, error: f64) -> Want {
    let bound = if error == 0.0 { 0.0 } else { x.abs() / 2.0 * error };
    let bound = if value.is_finite() { bound + 2.0 * ROUNDING * value.abs() } else { 0.0 };
    Want::near(value, bound)
}

pub(super) fn expect_unary(
    op: &'static str,
    desc: &UnaryDesc<'_>,
    memory: &Bytes,
) -> BackendResult<Expected> {
    let (_, loops) = desc.operands(op)?;
    let want = |x| unary_with(desc.op, [desc.alpha, desc.beta], x, desc.output.dtype);
    Ok(Expected::of_each([desc.input, desc.output], &loops, memory, want))
}
