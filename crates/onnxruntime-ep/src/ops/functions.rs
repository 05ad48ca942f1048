//! Activations and other functions that take several operations.

use backend_api::{BinaryOp, CompareOp, UnaryOp};

use super::call::Call;
use super::device::Device;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::tensor::Tensor;

use BinaryOp::{Add, Div, Mul, Sub};
use CompareOp::{Gt, Lt};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Gelu", Kinds::Float, gelu),
    Operator::new("Gelu", Kinds::Float, gelu).of_microsoft(),
    Operator::new("BiasGelu", Kinds::Float, bias_gelu).of_microsoft(),
    Operator::new("FastGelu", Kinds::Float, bias_gelu).of_microsoft(),
    Operator::new("QuickGelu", Kinds::Float, one).of_microsoft(),
    Operator::new("Erf", Kinds::Float, one),
    Operator::new("Cosh", Kinds::Float, one),
    Operator::new("Sinh", Kinds::Float, one),
    Operator::new("Tan", Kinds::Float, one),
    Operator::new("Acosh", Kinds::Float, one),
    Operator::new("Asinh", Kinds::Float, one),
    Operator::new("Atanh", Kinds::Float, one),
    Operator::new("Softplus", Kinds::Float, one),
    Operator::new("Mish", Kinds::Float, one),
    Operator::new("Softsign", Kinds::Float, one),
    Operator::new("Swish", Kinds::Float, one),
    Operator::new("SwiGLU", Kinds::Float, one),
    Operator::new("HardSigmoid", Kinds::Float, one),
    Operator::new("HardSwish", Kinds::Float, one),
    Operator::new("LeakyRelu", Kinds::Float, one),
    Operator::new("PRelu", Kinds::Float, one),
    Operator::new("ThresholdedRelu", Kinds::Float, one),
    Operator::new("Elu", Kinds::Float, one),
    Operator::new("Celu", Kinds::Float, one),
    Operator::new("Selu", Kinds::Float, one),
    Operator::new("Shrink", Kinds::Float, one),
];

fn gelu(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let op = if call.node.text("approximate") == "tanh" { UnaryOp::GeluTanh } else { UnaryOp::Gelu };
    Ok(vec![call.device().unary(op, call.input(0)?)?])
}

fn bias_gelu(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let op = if call.node.operator == "FastGelu" { UnaryOp::GeluTanh } else { UnaryOp::Gelu };
    Ok(vec![match call.optional(1) {
        Some(bias) => d.unary(op, &d.binary(Add, x, bias)?)?,
        None => d.unary(op, x)?,
    }])
}

/// A function with one output, computed in f32.
fn one(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let y = function(call, d, &d.convert(x, Kind::F32)?)?;
    Ok(vec![d.convert(&y, x.kind)?])
}

fn function(call: &Call<'_>, d: Device<'_>, x: &Tensor) -> Result<Tensor> {
    let node = call.node;
    let below = |bound: f64| d.compare(Lt, x, bound);
    let magnitude = || d.unary(UnaryOp::Abs, x);
    let second = || d.convert(call.input(1)?, Kind::F32);
    Ok(match node.operator.as_str() {
        "Erf" => erf(d, x)?,
        "Cosh" => {
            let e = d.unary(UnaryOp::Exp, x)?;
            d.affine(&d.binary(Add, &e, &d.unary(UnaryOp::Recip, &e)?)?, 0.5, 0.0)?
        }
        // By the tangent of the half, which is exact around zero.
        "Sinh" => {
            let t = d.unary(UnaryOp::Tanh, &d.affine(x, 0.5, 0.0)?)?;
            let rest = d.affine(&d.unary(UnaryOp::Square, &t)?, -1.0, 1.0)?;
            d.binary(Div, &d.affine(&t, 2.0, 0.0)?, &rest)?
        }
        "Tan" => d.binary(Div, &d.unary(UnaryOp::Sin, x)?, &d.unary(UnaryOp::Cos, x)?)?,
        "Acosh" => {
            let root = d.unary(UnaryOp::Sqrt, &d.affine(&d.unary(UnaryOp::Square, x)?, 1.0, -1.0)?)?;
            d.unary(UnaryOp::Log, &d.binary(Add, x, &root)?)?
        }
        "Asinh" => {
            let root = d.unary(UnaryOp::Sqrt, &d.affine(&d.unary(UnaryOp::Square, x)?, 1.0, 1.0)?)?;
            let y = d.unary(UnaryOp::Log, &d.binary(Add, &magnitude()?, &root)?)?;
            d.binary(Mul, &d.unary(UnaryOp::Sign, x)?, &y)?
        }
        "Atanh" => {
            let ratio = d.binary(Div, &d.affine(x, 1.0, 1.0)?, &d.affine(x, -1.0, 1.0)?)?;
            d.affine(&d.unary(UnaryOp::Log, &ratio)?, 0.5, 0.0)?
        }
        // max(x, 0) + ln(1 + e^−|x|), which doesn't overflow.
        "Softplus" => {
            let e = d.unary(UnaryOp::Exp, &d.unary(UnaryOp::Neg, &magnitude()?)?)?;
            d.binary(Add, &d.unary(UnaryOp::Relu, x)?, &d.unary(UnaryOp::Log, &d.affine(&e, 1.0, 1.0)?)?)?
        }
        // x · tanh(ln(1 + eˣ)), of which the tangent is (e² + 2e) / (e² + 2e + 2); it is 1 where e² overflows.
        "Mish" => {
            let e = d.unary(UnaryOp::Exp, &d.clamp(x, f64::NEG_INFINITY, 20.0)?)?;
            let part = d.binary(Mul, &e, &d.affine(&e, 1.0, 2.0)?)?;
            d.binary(Mul, x, &d.binary(Div, &part, &d.affine(&part, 1.0, 2.0)?)?)?
        }
        "Softsign" => d.binary(Div, x, &d.affine(&magnitude()?, 1.0, 1.0)?)?,
        "Swish" => sigmoid_gated(d, x, node.float("alpha", 1.0))?,
        "QuickGelu" => sigmoid_gated(d, x, node.float("alpha", 1.702))?,
        "SwiGLU" => d.binary(Mul, &sigmoid_gated(d, x, node.float("alpha", 1.0))?, &second()?)?,
        "HardSigmoid" => {
            d.clamp(&d.affine(x, node.float("alpha", 0.2), node.float("beta", 0.5))?, 0.0, 1.0)?
        }
        "HardSwish" => d.binary(Mul, x, &d.clamp(&d.affine(x, 1.0 / 6.0, 0.5)?, 0.0, 1.0)?)?,
        "LeakyRelu" => d.choose(&below(0.0)?, &d.affine(x, node.float("alpha", 0.01), 0.0)?, x)?,
        "PRelu" => d.choose(&below(0.0)?, &d.binary(Mul, x, &second()?)?, x)?,
        "ThresholdedRelu" => d.choose(&d.compare(Gt, x, node.float("alpha", 1.0))?, x, 0.0)?,
        "Elu" => d.choose(&below(0.0)?, &minus_one(d, x, node.float("alpha", 1.0), 1.0)?, x)?,
        "Celu" => {
            let alpha = node.float("alpha", 1.0);
            d.choose(&below(0.0)?, &minus_one(d, x, alpha, 1.0 / alpha)?, x)?
        }
        "Selu" => {
            let [alpha, gamma] = [node.float("alpha", 1.673_263_2), node.float("gamma", 1.050_701)];
            d.choose(&below(0.0)?, &minus_one(d, x, alpha * gamma, 1.0)?, &d.affine(x, gamma, 0.0)?)?
        }
        "Shrink" => {
            let [bound, bias] = [node.float("lambd", 0.5), node.float("bias", 0.0)];
            let high = d.choose(&d.compare(Gt, x, bound)?, &d.binary(Sub, x, bias)?, 0.0)?;
            d.choose(&below(-bound)?, &d.affine(x, 1.0, bias)?, &high)?
        }
        other => return Err(Error::invalid(format!("{other} is no function"))),
    })
}

/// x · sigmoid(alpha · x).
fn sigmoid_gated(d: Device<'_>, x: &Tensor, alpha: f64) -> Result<Tensor> {
    if alpha == 1.0 {
        return d.unary(UnaryOp::Silu, x);
    }
    d.binary(Mul, x, &d.unary(UnaryOp::Sigmoid, &d.affine(x, alpha, 0.0)?)?)
}

/// The error function from the exact GELU, 2·gelu(√2·x) / (√2·x) − 1; around zero, where that loses its
/// digits, the first terms of its series.
fn erf(d: Device<'_>, x: &Tensor) -> Result<Tensor> {
    use std::f64::consts::{FRAC_2_SQRT_PI, SQRT_2};
    let scaled = d.affine(x, SQRT_2, 0.0)?;
    let far = d.affine(&d.binary(Div, &d.unary(UnaryOp::Gelu, &scaled)?, &scaled)?, 2.0, -1.0)?;
    let bend = d.affine(&d.unary(UnaryOp::Square, x)?, -FRAC_2_SQRT_PI / 3.0, FRAC_2_SQRT_PI)?;
    let near = d.binary(Mul, x, &bend)?;
    let y = d.choose(&d.compare(Lt, &d.unary(UnaryOp::Abs, x)?, 0.05)?, &near, &far)?;
    // The quotient of two infinities.
    let end = d.compare(Gt, &d.unary(UnaryOp::Abs, x)?, 8.0)?;
    d.choose(&end, &d.unary(UnaryOp::Sign, x)?, &y)
}

/// factor · (e^(rate · x) − 1).
fn minus_one(d: Device<'_>, x: &Tensor, factor: f64, rate: f64) -> Result<Tensor> {
    d.affine(&d.unary(UnaryOp::Exp, &d.affine(x, rate, 0.0)?)?, factor, -factor)
}
