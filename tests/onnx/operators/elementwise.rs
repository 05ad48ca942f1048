//! Functions of each number.

use backend_api::{BinaryOp, DType, UnaryOp};

use crate::device::{Outcome, Tensor};
use crate::node::Node;

pub(super) fn run(node: &Node<'_>) -> Outcome<Option<Vec<Tensor>>> {
    let function = node.case.operator.as_str();
    if let Some(op) = unary(node) {
        return Ok(Some(vec![node.device.unary_with(op, parameters(node, op), node.input(0)?)?]));
    }
    let output = match function {
        "Add" | "Sub" | "Mul" | "Div" | "Mod" | "PRelu" | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor"
        | "BitShift" => node.device.binary(binary(node), node.input(0)?, node.input(1)?)?,
        "Max" | "Min" | "Sum" | "Mean" => fold(node, function)?,
        "Pow" => power(node)?,
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
        "Acos" => UnaryOp::Acos,
        "Acosh" => UnaryOp::Acosh,
        "Asin" => UnaryOp::Asin,
        "Asinh" => UnaryOp::Asinh,
        "Atan" => UnaryOp::Atan,
        "Atanh" => UnaryOp::Atanh,
        "BitwiseNot" => UnaryOp::BitNot,
        "Ceil" => UnaryOp::Ceil,
        "Celu" => UnaryOp::Celu,
        "Cos" => UnaryOp::Cos,
        "Cosh" => UnaryOp::Cosh,
        "Elu" => UnaryOp::Elu,
        "Erf" => UnaryOp::Erf,
        "Exp" => UnaryOp::Exp,
        "Floor" => UnaryOp::Floor,
        "Gelu" if node.text("approximate") == "tanh" => UnaryOp::GeluTanh,
        "Gelu" => UnaryOp::Gelu,
        "HardSigmoid" => UnaryOp::HardSigmoid,
        "HardSwish" => UnaryOp::HardSwish,
        "LeakyRelu" => UnaryOp::LeakyRelu,
        "Log" => UnaryOp::Log,
        "Mish" => UnaryOp::Mish,
        "Neg" => UnaryOp::Neg,
        "Reciprocal" => UnaryOp::Recip,
        "Relu" => UnaryOp::Relu,
        "Round" => UnaryOp::Round,
        "Selu" => UnaryOp::Selu,
        "Shrink" => UnaryOp::Shrink,
        "Sigmoid" => UnaryOp::Sigmoid,
        "Sign" => UnaryOp::Sign,
        "Sin" => UnaryOp::Sin,
        "Sinh" => UnaryOp::Sinh,
        "Softplus" => UnaryOp::Softplus,
        "Softsign" => UnaryOp::Softsign,
        "Sqrt" => UnaryOp::Sqrt,
        "Swish" => UnaryOp::Swish,
        "Tan" => UnaryOp::Tan,
        "Tanh" => UnaryOp::Tanh,
        "ThresholdedRelu" => UnaryOp::ThresholdedRelu,
        _ => return None,
    })
}

/// The parameters of the node, or else the function's own, which are ONNX's.
fn parameters(node: &Node<'_>, op: UnaryOp) -> [f64; 2] {
    let [alpha, beta] = op.default_parameters();
    let [first, second] = match op {
        UnaryOp::Shrink => ["lambd", "bias"],
        UnaryOp::Selu => ["alpha", "gamma"],
        _ => ["alpha", "beta"],
    };
    [node.float(first, alpha), node.float(second, beta)]
}

fn binary(node: &Node<'_>) -> BinaryOp {
    match node.case.operator.as_str() {
        "Mod" if node.int("fmod", 0) == 1 => BinaryOp::Rem,
        "Mod" => BinaryOp::Mod,
        "PRelu" => BinaryOp::Prelu,
        "BitwiseAnd" => BinaryOp::BitAnd,
        "BitwiseOr" => BinaryOp::BitOr,
        "BitwiseXor" => BinaryOp::BitXor,
        "BitShift" if node.text("direction") == "LEFT" => BinaryOp::Shl,
        "BitShift" => BinaryOp::Shr,
        other => arithmetic(other),
    }
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

/// Functions that take several operations.
fn composed(node: &Node<'_>, function: &str) -> Outcome<Option<Tensor>> {
    let d = node.device;
    let Some(x) = node.optional(0) else { return Ok(None) };
    Ok(Some(match function {
        "SwiGLU" if node.float("alpha", 1.0) == 1.0 => d.binary(BinaryOp::Swiglu, x, node.input(1)?)?,
        "SwiGLU" => {
            let gate = d.unary_with(UnaryOp::Swish, [node.float("alpha", 1.0), 0.0], x)?;
            d.binary(BinaryOp::Mul, &gate, node.input(1)?)?
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
