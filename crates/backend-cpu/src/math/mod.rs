//! Functions of f32 numbers, over slices.
//!
//! Functions that are rarely hot are the standard library's in f64; the others are in `scalar`.

mod functions;
mod scalar;
mod vectors;

use backend_api::{BinaryOp, UnaryOp};

pub(crate) use scalar::{exp, maximum, minimum};
use scalar::{gelu, gelu_tanh, hard_sigmoid, modulo, shrink, sigmoid, sign, silu, swiglu_oai, tanh};
use vectors::map;
pub(crate) use vectors::{exponentials, fold, largest, scale};

/// `x = op(x)` for each number, with the function's usual parameters.
pub(crate) fn apply_unary(op: UnaryOp, values: &mut [f32]) {
    apply_unary_with(op, op.default_parameters().map(|x| x as f32), values);
}

/// `x = op(x)` for each number, with the function's parameters α and β.
pub(crate) fn apply_unary_with(op: UnaryOp, parameters: [f32; 2], values: &mut [f32]) {
    let [a, b] = parameters;
    match op {
        UnaryOp::Relu => map(values, |x| maximum(x, 0.0)),
        UnaryOp::Sigmoid => map(values, sigmoid),
        UnaryOp::Tanh => map(values, tanh),
        UnaryOp::Exp => map(values, exp),
        UnaryOp::Sqrt => map(values, f32::sqrt),
        UnaryOp::Abs => map(values, f32::abs),
        UnaryOp::Neg => map(values, |x| -x),
        UnaryOp::Gelu => map(values, gelu),
        UnaryOp::GeluTanh => map(values, gelu_tanh),
        UnaryOp::Silu => map(values, silu),
        // Adding 0 turns −0 into 0, whose reciprocal root is +∞.
        UnaryOp::Rsqrt => map(values, |x| (1.0 / (f64::from(x) + 0.0).sqrt()) as f32),
        UnaryOp::Recip => map(values, |x| 1.0 / x),
        UnaryOp::Square => map(values, |x| x * x),
        UnaryOp::Floor => map(values, f32::floor),
        UnaryOp::Ceil => map(values, f32::ceil),
        UnaryOp::Round => map(values, f32::round_ties_even),
        UnaryOp::Sign => map(values, sign),
        UnaryOp::Trunc => map(values, f32::trunc),
        UnaryOp::LeakyRelu => map(values, |x| if x < 0.0 { a * x } else { x }),
        UnaryOp::ThresholdedRelu => map(values, |x| if x > a || x.is_nan() { x } else { 0.0 }),
        UnaryOp::Shrink => map(values, |x| shrink(x, a, b)),
        UnaryOp::HardSigmoid => map(values, |x| hard_sigmoid(x, a, b)),
        UnaryOp::HardSwish => map(values, |x| {
            let gate = hard_sigmoid(x, a, b);
            if gate == 0.0 { 0.0 } else { x * gate }
        }),
        _ => match functions::unary(op, parameters) {
            Some(function) => map(values, function),
            // The enum may grow; a function unknown here gives no number rather than a wrong one.
            None => values.fill(f32::NAN),
        },
    }
}

/// `a = op(a, b)` for each pair.
pub(crate) fn apply_binary(op: BinaryOp, a: &mut [f32], b: &[f32]) {
    match op {
        BinaryOp::Add => zip(a, b, |a, b| a + b),
        BinaryOp::Sub => zip(a, b, |a, b| a - b),
        BinaryOp::Mul => zip(a, b, |a, b| a * b),
        BinaryOp::Div => zip(a, b, |a, b| a / b),
        BinaryOp::Max => zip(a, b, maximum),
        BinaryOp::Min => zip(a, b, minimum),
        BinaryOp::Pow => zip(a, b, |a, b| f64::from(a).powf(f64::from(b)) as f32),
        BinaryOp::Swiglu => gate(UnaryOp::Silu, a, b),
        BinaryOp::Geglu => gate(UnaryOp::Gelu, a, b),
        BinaryOp::GegluTanh => gate(UnaryOp::GeluTanh, a, b),
        BinaryOp::SwigluOai => zip(a, b, swiglu_oai),
        BinaryOp::Rem => zip(a, b, |a, b| a % b),
        BinaryOp::Mod => zip(a, b, modulo),
        BinaryOp::Prelu => zip(a, b, |a, b| if a < 0.0 { a * b } else { a }),
        // As for unary functions.
        _ => a.fill(f32::NAN),
    }
}

/// `a = op(a) · b`.
fn gate(op: UnaryOp, a: &mut [f32], b: &[f32]) {
    apply_unary(op, a);
    zip(a, b, |a, b| a * b);
}

fn zip(a: &mut [f32], b: &[f32], f: impl Fn(f32, f32) -> f32) {
    for (a, &b) in a.iter_mut().zip(b) {
        *a = f(*a, b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The distance between `got` and `want` in units of the last place of f32.
    fn ulps(got: f32, want: f64) -> f64 {
        let nearest = want as f32;
        if got == nearest || (got.is_nan() && nearest.is_nan()) {
            return 0.0;
        }
        let exponent = (nearest.abs().max(f32::MIN_POSITIVE).to_bits() >> 23) as i32 - 127;
        (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
    }

    /// The true function in f64, from other code.
    fn exact(op: UnaryOp, x: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + libm::exp(-x));
        match op {
            UnaryOp::Sigmoid => sigmoid(x),
            UnaryOp::Tanh => libm::tanh(x),
            UnaryOp::Exp => libm::exp(x),
            UnaryOp::Gelu => 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
            UnaryOp::GeluTanh => {
                x * sigmoid(2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x))
            }
            UnaryOp::Silu => x * sigmoid(x),
            UnaryOp::Rsqrt => 1.0 / x.sqrt(),
            other => unreachable!("{other:?} is not tested here"),
        }
    }

    #[test]
    fn functions_are_right_to_two_units_everywhere() {
        use UnaryOp::{Exp, Gelu, GeluTanh, Rsqrt, Sigmoid, Silu, Tanh};
        // Every exponent, both signs, 997 steps apart in the bits.
        let inputs: Vec<f32> =
            (0..u32::MAX / 9973).map(|i| f32::from_bits(i * 9973)).filter(|x| x.is_finite()).collect();
        for op in [Sigmoid, Tanh, Exp, Gelu, GeluTanh, Silu, Rsqrt] {
            let mut got = inputs.clone();
            apply_unary(op, &mut got);
            let mut worst = (0.0, 0.0);
            for (&x, &y) in inputs.iter().zip(&got) {
                if op == Rsqrt && x == 0.0 {
                    assert_eq!(y, f32::INFINITY);
                    continue;
                }
                let error = ulps(y, exact(op, f64::from(x)));
                if error > worst.0 {
                    worst = (error, x);
                }
            }
            println!("{op:?}: {:.3} units at {:e}", worst.0, worst.1);
            assert!(worst.0 <= 2.0, "{op:?}: {worst:?}");
        }
    }

    #[test]
    fn ends_of_the_number_line() {
        let at = |op, x| {
            let mut x = [x];
            apply_unary(op, &mut x);
            x[0]
        };
        for &op in UnaryOp::ALL {
            assert!(at(op, f32::NAN).is_nan(), "{op:?}");
        }
        for op in [UnaryOp::Gelu, UnaryOp::GeluTanh, UnaryOp::Silu] {
            assert_eq!((at(op, f32::INFINITY), at(op, f32::NEG_INFINITY)), (f32::INFINITY, 0.0), "{op:?}");
        }
        assert_eq!((at(UnaryOp::Tanh, f32::INFINITY), at(UnaryOp::Tanh, f32::NEG_INFINITY)), (1.0, -1.0));
        assert_eq!(
            (at(UnaryOp::Exp, f32::INFINITY), at(UnaryOp::Exp, f32::NEG_INFINITY)),
            (f32::INFINITY, 0.0)
        );
        assert_eq!(
            (at(UnaryOp::Sigmoid, f32::INFINITY), at(UnaryOp::Sigmoid, f32::NEG_INFINITY)),
            (1.0, 0.0)
        );
        assert_eq!(at(UnaryOp::Sign, -0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(at(UnaryOp::Tanh, -0.0).to_bits(), (-0.0f32).to_bits());
        assert_eq!(at(UnaryOp::Round, 2.5), 2.0);
    }

    #[test]
    fn extremes_keep_nan_and_order_zeros() {
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert!(maximum(a, b).is_nan() && minimum(a, b).is_nan());
        }
        for (a, b) in [(0.0f32, -0.0f32), (-0.0, 0.0)] {
            assert!(maximum(a, b).is_sign_positive() && minimum(a, b).is_sign_negative());
        }
    }
}
