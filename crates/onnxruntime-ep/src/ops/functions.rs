//! Activations and other functions of one number, some with parameters.

use backend_api::{BinaryOp, CompareOp, UnaryOp};

use super::call::Call;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Gelu", Kinds::Float, gelu).of_views(),
    Operator::new("Gelu", Kinds::Float, gelu).of_views().of_microsoft(),
    Operator::new("BiasGelu", Kinds::Float, bias_gelu).of_microsoft(),
    Operator::new("FastGelu", Kinds::Float, bias_gelu).of_microsoft(),
    Operator::new("QuickGelu", Kinds::Float, quick_gelu).of_microsoft(),
    Operator::new("Erf", Kinds::Float, one).of_views(),
    Operator::new("Cosh", Kinds::Float, one).of_views(),
    Operator::new("Sinh", Kinds::Float, one).of_views(),
    Operator::new("Tan", Kinds::Float, one).of_views(),
    Operator::new("Acos", Kinds::Float, one).of_views(),
    Operator::new("Asin", Kinds::Float, one).of_views(),
    Operator::new("Atan", Kinds::Float, one).of_views(),
    Operator::new("Acosh", Kinds::Float, one).of_views(),
    Operator::new("Asinh", Kinds::Float, one).of_views(),
    Operator::new("Atanh", Kinds::Float, one).of_views(),
    Operator::new("Softplus", Kinds::Float, one).of_views(),
    Operator::new("Mish", Kinds::Float, one).of_views(),
    Operator::new("Softsign", Kinds::Float, one).of_views(),
    Operator::new("Swish", Kinds::Float, one).of_views(),
    Operator::new("SwiGLU", Kinds::Float, swiglu).of_views(),
    Operator::new("HardSigmoid", Kinds::Float, one).of_views(),
    Operator::new("HardSwish", Kinds::Float, one).of_views(),
    Operator::new("LeakyRelu", Kinds::Float, one).of_views(),
    Operator::new("PRelu", Kinds::Float, prelu),
    Operator::new("ThresholdedRelu", Kinds::Float, compared).of_views(),
    Operator::new("Elu", Kinds::Float, one).of_views(),
    Operator::new("Celu", Kinds::Float, one).of_views(),
    Operator::new("Selu", Kinds::Float, one).of_views(),
    Operator::new("Shrink", Kinds::Float, compared).of_views(),
];

fn gelu(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let op = if call.node.text("approximate") == "tanh" { UnaryOp::GeluTanh } else { UnaryOp::Gelu };
    Ok(vec![call.device().unary(op, call.input(0)?)?])
}

fn bias_gelu(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let op = if call.node.operator == "FastGelu" { UnaryOp::GeluTanh } else { UnaryOp::Gelu };
    Ok(vec![match call.optional(1) {
        Some(bias) => d.unary(op, &d.binary(BinaryOp::Add, x, bias)?)?,
        None => d.unary(op, x)?,
    }])
}

/// The device's function with an operator's name, compared without case and underscores.
fn function(operator: &str) -> Option<UnaryOp> {
    let is_called_so = |op: &&UnaryOp| {
        let name = op.name().bytes().filter(|&byte| byte != b'_');
        name.eq(operator.bytes().map(|byte| byte.to_ascii_lowercase()))
    };
    UnaryOp::ALL.iter().find(is_called_so).copied()
}

/// A function of one number with the parameters that its attributes give.
fn one(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let node = call.node;
    let Some(op) = function(&node.operator) else {
        return Err(Error::invalid(format!("{} is no function of one number", node.operator)));
    };
    let names = match op {
        UnaryOp::Selu => ["alpha", "gamma"],
        UnaryOp::Shrink => ["lambd", "bias"],
        _ => ["alpha", "beta"],
    };
    let [alpha, beta] = op.default_parameters();
    let parameters = [node.float(names[0], alpha), node.float(names[1], beta)];
    Ok(vec![call.device().unary_with(op, call.input(0)?, parameters)?])
}

/// A function that ONNX defines by comparisons, of which NaN passes none, so that it becomes 0. The operations keep
/// it.
fn compared(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let is_nan = d.compare(CompareOp::Ne, x, x)?;
    one(call)?.iter().map(|y| d.choose(&is_nan, 0.0, y)).collect()
}

fn quick_gelu(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let alpha = call.node.float("alpha", 1.702);
    Ok(vec![call.device().unary_with(UnaryOp::Swish, call.input(0)?, [alpha, 0.0])?])
}

fn prelu(call: &Call<'_>) -> Result<Vec<Tensor>> {
    Ok(vec![call.device().binary(BinaryOp::Prelu, call.input(0)?, call.input(1)?)?])
}

fn swiglu(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, gate, x) = (call.device(), call.input(0)?, call.input(1)?);
    let alpha = call.node.float("alpha", 1.0);
    Ok(vec![if alpha == 1.0 {
        d.binary(BinaryOp::Swiglu, gate, x)?
    } else {
        d.binary(BinaryOp::Mul, &d.unary_with(UnaryOp::Swish, gate, [alpha, 0.0])?, x)?
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operators that aren't one function of the device.
    const OTHERS: [&str; 6] = ["Gelu", "BiasGelu", "FastGelu", "QuickGelu", "SwiGLU", "PRelu"];

    #[test]
    fn functions_of_one_number_are_found_by_their_names() {
        for operator in OPERATORS.iter().filter(|operator| !OTHERS.contains(&operator.name)) {
            let op = function(operator.name).map(|op| format!("{op:?}"));
            assert_eq!(op.as_deref(), Some(operator.name));
        }
    }
}
