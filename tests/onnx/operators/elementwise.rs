//! Functions of each number.

use backend_api::{BackendResult, BinaryOp, CompareOp, DType, UnaryOp};

use crate::device::{Device, Outcome, Tensor};
use crate::node::Node;

pub(super) fn run(node: &Node<'_>) -> Outcome<Option<Vec<Tensor>>> {
    let function = node.case.operator.as_str();
    if let Some(op) = unary(node) {
        return Ok(Some(vec![node.device.unary(op, node.input(0)?)?]));
    }
    let output = match function {
        "Add" | "Sub" | "Mul" | "Div" => {
            node.device.binary(arithmetic(function), node.input(0)?, node.input(1)?)?
        }
        "Max" | "Min" | "Sum" | "Mean" => fold(node, function)?,
        "Pow" => power(node)?,
        "Mod" => modulo(node)?,
        _ => match composed(node, function)? {
            Some(output) => output,
            None => return Ok(None),
        },
    };
    Ok(Some(vec![output]))
}

/// Functions that are one operation.
fn unary(node: &Node<'_>) -> Option<UnaryOp> {
    Some(match node.case.operator.as_str() {
        "Abs" => UnaryOp::Abs,
        "Ceil" => UnaryOp::Ceil,
        "Cos" => UnaryOp::Cos,
        "Exp" => UnaryOp::Exp,
        "Floor" => UnaryOp::Floor,
        "Gelu" if node.text("approximate") == "tanh" => UnaryOp::GeluTanh,
        "Gelu" => UnaryOp::Gelu,
        "Log" => UnaryOp::Log,
        "Neg" => UnaryOp::Neg,
        "Reciprocal" => UnaryOp::Recip,
        "Relu" => UnaryOp::Relu,
        "Round" => UnaryOp::Round,
        "Sigmoid" => UnaryOp::Sigmoid,
        "Sign" => UnaryOp::Sign,
        "Sin" => UnaryOp::Sin,
        "Sqrt" => UnaryOp::Sqrt,
        "Tanh" => UnaryOp::Tanh,
        _ => return None,
    })
}

fn arithmetic(operator: &str) -> BinaryOp {
    match operator {
        "Sub" => BinaryOp::Sub,
        "Mul" => BinaryOp::Mul,
        "Div" => BinaryOp::Div,
        "Max" => BinaryOp::Max,
        "Min" => BinaryOp::Min,
        _ => BinaryOp::Add,
    }
}

/// An operation between all inputs, and for the mean their number.
fn fold(node: &Node<'_>, operator: &str) -> Outcome<Tensor> {
    let inputs = node.all();
    let mut folded = node.input(0)?.clone();
    for &input in &inputs[1..] {
        folded = node.device.binary(arithmetic(operator), &folded, input)?;
    }
    if operator == "Mean" {
        folded = node.device.binary(BinaryOp::Div, &folded, inputs.len() as f64)?;
    }
    Ok(folded)
}

/// Powers of the base's type, computed in f32.
fn power(node: &Node<'_>) -> Outcome<Tensor> {
    let (device, base, exponent) = (node.device, node.input(0)?, node.input(1)?);
    let [a, b] = [device.convert(base, DType::F32)?, device.convert(exponent, DType::F32)?];
    let y = device.binary(BinaryOp::Pow, &a, &b)?;
    if base.dtype == DType::F32 {
        return Ok(y);
    }
    // A conversion drops the fraction, and with it a whole number that was missed by a little.
    Ok(device.convert(&device.unary(UnaryOp::Round, &y)?, base.dtype)?)
}

/// The remainder of a division towards zero with `fmod`, else of one towards −∞.
fn modulo(node: &Node<'_>) -> Outcome<Tensor> {
    let (device, a, b) = (node.device, node.input(0)?, node.input(1)?);
    let quotient = device.binary(BinaryOp::Div, a, b)?;
    let quotient = if a.dtype == DType::F32 { towards_zero(device, &quotient)? } else { quotient };
    // Of an infinite divisor, none is taken away.
    let none = device.compare(CompareOp::Eq, &quotient, 0.0)?;
    let whole = device.choose(&none, 0.0, &device.binary(BinaryOp::Mul, &quotient, b)?)?;
    let remainder = device.binary(BinaryOp::Sub, a, &whole)?;
    if node.int("fmod", 0) == 1 || a.dtype == DType::U32 {
        return Ok(remainder);
    }
    let opposite = device.compare(CompareOp::Lt, &device.binary(BinaryOp::Mul, &remainder, b)?, 0.0)?;
    Ok(device.choose(&opposite, &device.binary(BinaryOp::Add, &remainder, b)?, &remainder)?)
}

fn towards_zero(device: &Device<'_>, x: &Tensor) -> BackendResult<Tensor> {
    let magnitude = device.unary(UnaryOp::Floor, &device.unary(UnaryOp::Abs, x)?)?;
    device.binary(BinaryOp::Mul, &device.unary(UnaryOp::Sign, x)?, &magnitude)
}

/// Functions that take several operations.
fn composed(node: &Node<'_>, function: &str) -> Outcome<Option<Tensor>> {
    use BinaryOp::{Add, Div, Mul, Sub};
    use CompareOp::{Gt, Lt};
    let d = node.device;
    let Some(x) = node.optional(0) else { return Ok(None) };
    let below = |bound: f64| d.compare(Lt, x, bound);
    let magnitude = || d.unary(UnaryOp::Abs, x);
    Ok(Some(match function {
        // eˣ and e⁻ˣ; the hyperbolic sine by the tangent of the half, which is exact around zero.
        "Cosh" => {
            let e = d.unary(UnaryOp::Exp, x)?;
            d.affine(&d.binary(Add, &e, &d.unary(UnaryOp::Recip, &e)?)?, 0.5, 0.0)?
        }
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
        "Softplus" => {
            let e = d.unary(UnaryOp::Exp, &d.unary(UnaryOp::Neg, &magnitude()?)?)?;
            d.binary(Add, &d.unary(UnaryOp::Relu, x)?, &d.unary(UnaryOp::Log, &d.affine(&e, 1.0, 1.0)?)?)?
        }
        // x · tanh(ln(1 + eˣ)), of which the tangent is (e² + 2e) / (e² + 2e + 2).
        "Mish" => {
            let e = d.unary(UnaryOp::Exp, x)?;
            let part = d.binary(Mul, &e, &d.affine(&e, 1.0, 2.0)?)?;
            d.binary(Mul, x, &d.binary(Div, &part, &d.affine(&part, 1.0, 2.0)?)?)?
        }
        "Softsign" => d.binary(Div, x, &d.affine(&magnitude()?, 1.0, 1.0)?)?,
        "Swish" => {
            let gate = d.unary(UnaryOp::Sigmoid, &d.affine(x, node.float("alpha", 1.0), 0.0)?)?;
            d.binary(Mul, x, &gate)?
        }
        "SwiGLU" if node.float("alpha", 1.0) == 1.0 => d.binary(BinaryOp::Swiglu, x, node.input(1)?)?,
        "SwiGLU" => {
            let gate = d.unary(UnaryOp::Sigmoid, &d.affine(x, node.float("alpha", 1.0), 0.0)?)?;
            d.binary(Mul, &d.binary(Mul, x, &gate)?, node.input(1)?)?
        }
        "HardSigmoid" => {
            d.clamp(&d.affine(x, node.float("alpha", 0.2), node.float("beta", 0.5))?, 0.0, 1.0)?
        }
        "HardSwish" => d.binary(Mul, x, &d.clamp(&d.affine(x, 1.0 / 6.0, 0.5)?, 0.0, 1.0)?)?,
        "LeakyRelu" => d.choose(&below(0.0)?, &d.affine(x, node.float("alpha", 0.01), 0.0)?, x)?,
        "PRelu" => d.choose(&below(0.0)?, &d.binary(Mul, x, node.input(1)?)?, x)?,
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
        "Clip" => {
            let bound = |i, otherwise| -> Outcome<f64> {
                Ok(node.numbers(i)?.and_then(|numbers| numbers.first().copied()).unwrap_or(otherwise))
            };
            d.clamp(x, bound(1, f64::NEG_INFINITY)?, bound(2, f64::INFINITY)?)?
        }
        _ => return Ok(None),
    }))
}

/// factor · (e^(rate · x) − 1).
fn minus_one(device: &Device<'_>, x: &Tensor, factor: f64, rate: f64) -> BackendResult<Tensor> {
    device.affine(&device.unary(UnaryOp::Exp, &device.affine(x, rate, 0.0)?)?, factor, -factor)
}
