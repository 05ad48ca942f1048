//! Reductions, cumulative sums and softmax.

use backend_api::desc::{CumSumDesc, SoftmaxDesc};
use backend_api::{BinaryOp, DType, ReduceOp, UnaryOp};

use crate::device::{Outcome, Tensor};
use crate::node::{Node, axis};

pub(super) fn run(node: &Node<'_>) -> Outcome<Option<Vec<Tensor>>> {
    let output = match node.case.operator.as_str() {
        "ArgMax" => extreme(node, ReduceOp::ArgMax)?,
        "ArgMin" => extreme(node, ReduceOp::ArgMin)?,
        "CumSum" => cumulative_sum(node)?,
        "Softmax" => softmax(node, false)?,
        "LogSoftmax" => softmax(node, true)?,
        other => match reduction(other) {
            Some(op) => reduced(node, other, op)?,
            None => return Ok(None),
        },
    };
    Ok(Some(vec![output]))
}

fn reduction(operator: &str) -> Option<ReduceOp> {
    Some(match operator {
        "ReduceSum" | "ReduceSumSquare" | "ReduceLogSum" => ReduceOp::Sum,
        "ReduceMean" => ReduceOp::Mean,
        "ReduceMax" => ReduceOp::Max,
        "ReduceMin" => ReduceOp::Min,
        "ReduceProd" => ReduceOp::Prod,
        "ReduceL1" => ReduceOp::NormL1,
        "ReduceL2" => ReduceOp::NormL2,
        "ReduceLogSumExp" => ReduceOp::LogSumExp,
        _ => return None,
    })
}

fn reduced(node: &Node<'_>, operator: &str, op: ReduceOp) -> Outcome<Tensor> {
    let mut x = node.input(0)?.clone();
    let rank = x.shape.len();
    let named = node.integers(1)?.or_else(|| node.ints("axes")).unwrap_or_default();
    let axes: Vec<usize> = match named.is_empty() && node.int("noop_with_empty_axes", 0) == 0 {
        true => (0..rank).collect(),
        false => named.into_iter().map(|named| axis(named, rank)).collect::<Outcome<_>>()?,
    };
    if operator == "ReduceSumSquare" {
        x = node.device.unary(UnaryOp::Square, &x)?;
    }
    let mut y = node.device.reduce(op, &x, &axes)?;
    if operator == "ReduceLogSum" {
        y = node.device.unary(UnaryOp::Log, &y)?;
    }
    Ok(y.reshaped(node.output(0)?.1))
}

/// The place of the first extreme, or with `select_last_index` of the last: the first of the elements in
/// reverse order.
fn extreme(node: &Node<'_>, op: ReduceOp) -> Outcome<Tensor> {
    let (device, x) = (node.device, node.input(0)?);
    let axis = node.axis(0, x.shape.len())?;
    let shape = node.output(0)?.1;
    if node.int("select_last_index", 0) == 0 {
        return Ok(device.reduce(op, x, &[axis])?.reshaped(shape));
    }
    let length = x.shape[axis];
    let backwards: Vec<f64> = (0..length).rev().map(|i| i as f64).collect();
    let backwards = device.upload(DType::I32, &[length], &backwards)?;
    let place = device.reduce(op, &device.select(x, axis, &backwards)?, &[axis])?;
    Ok(device.binary(BinaryOp::Sub, length as f64 - 1.0, &place)?.reshaped(shape))
}

fn cumulative_sum(node: &Node<'_>) -> Outcome<Tensor> {
    let x = node.input(0)?;
    let named = node.integers(1)?.and_then(|axes| axes.first().copied()).unwrap_or_default();
    let y = node.device.empty(x.dtype, &x.shape)?;
    let mut desc = CumSumDesc::along(x.dtype, x.ptr, y.ptr, &x.shape, axis(named, x.shape.len())?)?;
    (desc.exclusive, desc.reverse) = (node.int("exclusive", 0) == 1, node.int("reverse", 0) == 1);
    node.device.backend.cumsum(&desc)?;
    Ok(y)
}

fn softmax(node: &Node<'_>, log: bool) -> Outcome<Tensor> {
    let x = node.input(0)?;
    let y = node.device.empty(x.dtype, &x.shape)?;
    let desc = SoftmaxDesc::along(x.dtype, x.ptr, y.ptr, &x.shape, node.axis(-1, x.shape.len())?)?;
    node.device.backend.softmax(&if log { desc.with_log() } else { desc })?;
    Ok(y)
}
