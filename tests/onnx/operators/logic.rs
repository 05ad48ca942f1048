//! Comparisons, truth values, choices and conversions. A truth value is 0 or 1 of u32.

use backend_api::{BinaryOp, CompareOp, UnaryOp};

use crate::device::{Outcome, Tensor};
use crate::node::Node;

pub(super) fn run(node: &Node<'_>) -> Outcome<Option<Vec<Tensor>>> {
    let d = node.device;
    let output = match node.case.operator.as_str() {
        "Where" => d.choose(node.input(0)?, node.input(1)?, node.input(2)?)?,
        "Cast" => d.convert(node.input(0)?, node.output(0)?.0)?,
        "And" => d.binary(BinaryOp::Min, node.input(0)?, node.input(1)?)?,
        "Or" => d.binary(BinaryOp::Max, node.input(0)?, node.input(1)?)?,
        "Not" => d.compare(CompareOp::Eq, node.input(0)?, 0.0)?,
        "IsNaN" => d.compare(CompareOp::Ne, node.input(0)?, node.input(0)?)?,
        "IsInf" => {
            let x = node.input(0)?;
            let [negative, positive] =
                ["detect_negative", "detect_positive"].map(|name| node.int(name, 1) == 1);
            match (negative, positive) {
                (true, true) => d.compare(CompareOp::Eq, &d.unary(UnaryOp::Abs, x)?, f64::INFINITY)?,
                (true, false) => d.compare(CompareOp::Eq, x, f64::NEG_INFINITY)?,
                (false, true) => d.compare(CompareOp::Eq, x, f64::INFINITY)?,
                (false, false) => d.compare(CompareOp::Lt, x, x)?,
            }
        }
        other => match comparison(other) {
            Some(op) => d.compare(op, node.input(0)?, node.input(1)?)?,
            None => return Ok(None),
        },
    };
    Ok(Some(vec![output]))
}

fn comparison(operator: &str) -> Option<CompareOp> {
    Some(match operator {
        "Equal" => CompareOp::Eq,
        "Xor" => CompareOp::Ne,
        "Less" => CompareOp::Lt,
        "LessOrEqual" => CompareOp::Le,
        "Greater" => CompareOp::Gt,
        "GreaterOrEqual" => CompareOp::Ge,
        _ => return None,
    })
}
