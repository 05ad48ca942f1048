//! Functions of one number.

use backend_api::{Activation, DType, UnaryOp};

use crate::float::{MIN_NORMAL_F32, ROUNDING, is_subnormal, ulp_f32};
use crate::want::Want;

/// The relative error of a division, 2.5 units in the last place.
const DIVISION: f64 = 2.5 * ROUNDING;

/// `op(x)` for an `x` of `dtype`; a subnormal `x` may count as zero.
pub(crate) fn unary(op: UnaryOp, x: f64, dtype: DType) -> Want {
    let want = function(op, x);
    let zero = is_subnormal(dtype, x).then(|| function(op, 0f64.copysign(x)));
    want.or(zero)
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
