//! Linear layers that ONNX Runtime and exporters write with matrices of two dimensions.

use super::{View, replacing};
use crate::model::Node;

/// A reshape of a reshape, whose target has no extent that depends on what is reshaped.
pub(super) fn reshape(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    if last.operator != "Reshape" || target(view, last)?.contains(&0) {
        return None;
    }
    let input = last.input(0)?;
    let operators = ["Reshape", "Squeeze", "Unsqueeze", "Flatten"];
    let before = operators.into_iter().find_map(|operator| view.made_by(input, operator))?;
    let mut node = last.clone();
    node.inputs[0] = before.input(0)?.to_owned();
    Some(vec![node])
}

/// The shape that a node reshapes to, if it is a constant.
fn target(view: &View<'_>, node: &Node) -> Option<Vec<i64>> {
    view.graph.constants.get(node.input(1)?)?.ints().ok()
}

/// `[…, k]` reshaped to `[m, k]`, multiplied by a matrix, and reshaped to `[…, n]`: a product with as many
/// dimensions.
pub(super) fn layer(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    if last.operator != "Reshape" {
        return None;
    }
    let gemm = view.only(last.input(0)?, "Gemm")?;
    let flat = view.made_by(gemm.input(0)?, "Reshape")?;
    let x = flat.input(0)?;
    let extents = |name: &str| {
        view.graph.types.get(name)?.shape.as_ref()?.iter().copied().collect::<Option<Vec<usize>>>()
    };
    let (shape, weight) = (extents(x)?, extents(gemm.input(1)?)?);
    let is_transposed = gemm.int("transB", 0) == 1;
    let &[rows, columns] = weight.as_slice() else { return None };
    let (k, n) = if is_transposed { (columns, rows) } else { (rows, columns) };
    let (&last_extent, outer) = shape.split_last()?;
    let m: usize = outer.iter().product();
    let is = |given: Vec<i64>, wanted: &[usize]| {
        given.len() == wanted.len() && given.iter().zip(wanted).all(|(&a, &b)| a > 0 && a == b as i64)
    };
    if last_extent != k || gemm.int("transA", 0) != 0 || gemm.float("beta", 1.0) != 1.0 {
        return None;
    }
    if !is(target(view, flat)?, &[m, k]) || !is(target(view, last)?, &[outer, &[n]].concat()) {
        return None;
    }
    if let Some(bias) = gemm.input(2) {
        extents(bias).filter(|bias| *bias == [n])?;
    }
    let mut inputs = vec![x];
    inputs.extend(gemm.inputs.iter().skip(1).map(String::as_str));
    let mut node = replacing(last, "MatMul", &inputs);
    node.attributes = gemm.attributes.clone();
    Some(vec![node])
}
