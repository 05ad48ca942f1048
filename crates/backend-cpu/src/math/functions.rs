//! Functions that are rarely hot, by the standard library's in f64.

use backend_api::UnaryOp;

/// A function of one number with its parameters α and β; `None` for one that isn't here.
pub(super) fn unary(op: UnaryOp, [alpha, beta]: [f32; 2]) -> Option<impl Fn(f32) -> f32> {
    let (a, b) = (f64::from(alpha), f64::from(beta));
    let function: Box<dyn Fn(f64) -> f64> = match op {
        UnaryOp::Log => Box::new(f64::ln),
        UnaryOp::Sin => Box::new(f64::sin),
        UnaryOp::Cos => Box::new(f64::cos),
        UnaryOp::Tan => Box::new(f64::tan),
        UnaryOp::Expm1 => Box::new(f64::exp_m1),
        UnaryOp::Log1p => Box::new(f64::ln_1p),
        UnaryOp::Erf => Box::new(libm::erf),
        UnaryOp::Asin => Box::new(f64::asin),
        UnaryOp::Acos => Box::new(f64::acos),
        UnaryOp::Atan => Box::new(f64::atan),
        UnaryOp::Sinh => Box::new(f64::sinh),
        UnaryOp::Cosh => Box::new(f64::cosh),
        UnaryOp::Asinh => Box::new(libm::asinh),
        UnaryOp::Acosh => Box::new(acosh),
        UnaryOp::Atanh => Box::new(libm::atanh),
        UnaryOp::Softplus => Box::new(softplus),
        UnaryOp::Softsign => Box::new(|x| if x.is_infinite() { x.signum() } else { x / (1.0 + x.abs()) }),
        UnaryOp::Mish => Box::new(|x| times(x, softplus(x).tanh())),
        UnaryOp::Elu => Box::new(move |x| elu(x, a, x)),
        UnaryOp::Selu => Box::new(move |x| b * elu(x, a, x)),
        UnaryOp::Celu => Box::new(move |x| elu(x, a, x / a)),
        UnaryOp::Swish => Box::new(move |x| times(x, 1.0 / (1.0 + (-a * x).exp()))),
        _ => return None,
    };
    Some(move |x: f32| function(f64::from(x)) as f32)
}

/// libm's looks at the exponent first, and takes some numbers far below 1 for their magnitudes.
fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

fn softplus(x: f64) -> f64 {
    if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

/// `x` where it isn't negative, else α·(eᵗ − 1).
fn elu(x: f64, alpha: f64, t: f64) -> f64 {
    if x < 0.0 { alpha * t.exp_m1() } else { x }
}

/// A product that is 0 where the gate is, whatever x.
fn times(x: f64, gate: f64) -> f64 {
    if gate == 0.0 { 0.0 } else { x * gate }
}
