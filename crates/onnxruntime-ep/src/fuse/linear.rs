//! Linear layers that ONNX Runtime and exporters write with matrices of two dimensions.

use super::{View, replacing};
use crate::model::{Attribute, Node};

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
    if let Some(extents) = node.ints("shape") {
        return Some(extents.to_vec());
    }
    view.graph.constants.get(node.input(1)?)?.ints().ok()
}

/// `[…, k]` reshaped to `[m, k]`, multiplied by a matrix, and reshaped to `[…, n]`: a product with as many
/// dimensions. Either k or n may be several extents, as those of heads.
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
    if gemm.int("transA", 0) != 0 || gemm.float("beta", 1.0) != 1.0 {
        return None;
    }
    let positive = |given: Vec<i64>| -> Option<Vec<usize>> {
        given.into_iter().map(|extent| usize::try_from(extent).ok().filter(|&extent| extent > 0)).collect()
    };
    let to = positive(target(view, last)?)?;
    let rows = |at: usize| {
        let (Some((outer, inner)), Some((rows, columns))) =
            (shape.split_at_checked(at), to.split_at_checked(at))
        else {
            return false;
        };
        outer == rows && inner.iter().product::<usize>() == k && columns.iter().product::<usize>() == n
    };
    let at = (1..to.len()).rev().find(|&at| rows(at))?;
    let outer = &shape[..at];
    if positive(target(view, flat)?)? != [outer.iter().product(), k] {
        return None;
    }
    if let Some(bias) = gemm.input(2) {
        extents(bias).filter(|bias| *bias == [n])?;
    }
    let mut nodes = Vec::new();
    let mut inputs: Vec<String> = gemm.inputs.clone();
    inputs[0] = x.to_owned();
    if shape.len() != at + 1 {
        inputs[0] = format!("{x} for {}", gemm.outputs.first()?);
        nodes.push(reshaped(flat, x, &inputs[0], [outer, &[k]].concat()));
    }
    let mut node = Node { inputs, outputs: last.outputs.clone(), ..replacing(last, "MatMul", &[]) };
    node.attributes = gemm.attributes.clone();
    if to.len() == at + 1 {
        nodes.push(node);
    } else {
        let rows = format!("rows of {}", last.outputs.first()?);
        node.outputs = vec![rows.clone()];
        nodes.extend([node, reshaped(last, &rows, last.outputs.first()?, to)]);
    }
    Some(nodes)
}

/// A reshape to extents that are known.
fn reshaped(like: &Node, from: &str, to: &str, extents: Vec<usize>) -> Node {
    let mut node = replacing(like, "Reshape", &[from]);
    let extents = extents.into_iter().map(|extent| extent as i64).collect();
    node.attributes.insert("shape".to_owned(), Attribute::Ints(extents));
    node.outputs = vec![to.to_owned()];
    node
}
