//! Attention as the products and the softmax that it consists of.

use super::{View, orders, replacing};
use crate::model::{Attribute, Node};

/// `softmax(scale · Q·Kᵀ + mask) · V` of four dimensions, where K and V have vectors of one length. The scale
/// may be a factor of Q, of K or of their product.
pub(super) fn attention(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    let (weights, v) = two_inputs(last, "MatMul").filter(|_| last.int("transB", 0) == 0)?;
    let softmax = softmax(view, weights)?;
    let mut name = softmax.input(0).filter(|_| matches!(softmax.int("axis", -1), -1 | 3))?;
    let mut mask = None;
    if let Some(sum) = view.only(name, "Add") {
        let is_scores = |name: &str| view.only(name, "MatMul").is_some() || scale(view, name).is_some();
        (name, mask) =
            orders(sum).into_iter().find(|&(scores, _)| is_scores(scores)).map(|(a, b)| (a, Some(b)))?;
    }
    let mut factor = 1.0;
    if let Some((scores, scale)) = scale(view, name) {
        (name, factor) = (scores, scale);
    }
    let product = view.only(name, "MatMul")?;
    let (q, keys) = two_inputs(product, "MatMul")?;
    // A product may read its right factor transposed.
    let is_turned = product.int("transB", 0) == 1;
    let shape = |name: &str| view.graph.types.get(name)?.shape.clone().filter(|shape| shape.len() == 4);
    let (of_q, of_v) = (shape(q)?, shape(v)?);
    let mut of_k = shape(keys).or_else(|| {
        let transpose = view.made_by(scaled(view, keys).map_or(keys, |(name, _)| name), "Transpose")?;
        let (from, axes) = (shape(transpose.input(0)?)?, transpose.ints("perm")?);
        axes.iter().map(|&axis| from.get(usize::try_from(axis).ok()?).copied()).collect()
    })?;
    if of_k.len() != 4 {
        return None;
    }
    if !is_turned {
        of_k.swap(2, 3);
    }
    let is_one = |a: Option<usize>, b: Option<usize>, c: Option<usize>| a.is_some() && a == b && b == c;
    if of_q[0] != of_k[0] || of_q[0] != of_v[0] {
        return None;
    }
    if !is_one(of_q[1], of_k[1], of_v[1]) || !is_one(of_q[3], of_k[3], of_v[3]) {
        return None;
    }
    // A mask of more than the scores' dimensions, or of none that is known, is none of attention's.
    if let Some(mask) = mask {
        view.graph.types.get(mask)?.shape.as_ref().filter(|shape| (2..=4).contains(&shape.len()))?;
    }
    // An exporter makes one of no padding at all.
    let mask = mask.filter(|mask| !adds_nothing(view, mask, [of_q[0], of_q[1], of_q[2], of_k[2]]));
    let mut nodes = Vec::new();
    let (q, of_queries) = unscaled(view, q, &mut nodes);
    let (k, of_keys) =
        if is_turned { unscaled(view, keys, &mut nodes) } else { untransposed(view, keys, &mut nodes)? };
    let mut inputs = vec![q.as_str(), k.as_str(), v];
    inputs.extend(mask);
    let mut node = replacing(last, "Attention", &inputs);
    node.attributes.insert("scale".to_owned(), Attribute::Float(factor * of_queries * of_keys));
    nodes.push(node);
    Some(nodes)
}

/// Whether a mask is zeros that leave the scores and their shape as they are.
fn adds_nothing(view: &View<'_>, mask: &str, scores: [Option<usize>; 4]) -> bool {
    let Some(constant) = view.graph.constants.get(mask) else { return false };
    let extents = constant.shape.iter().rev().zip(scores.into_iter().rev());
    let is_within = constant.rank() <= scores.len()
        && extents.into_iter().all(|(&extent, of_scores)| extent == 1 || Some(extent) == of_scores);
    is_within && view.is_zero(mask)
}

/// The softmax of the weights, also where NaN, of queries that see no key, is replaced by 0.
fn softmax<'a>(view: &View<'a>, weights: &str) -> Option<&'a Node> {
    let is_current = |node: &&Node| node.since >= 13;
    let Some(choice) = view.only(weights, "Where") else {
        return view.only(weights, "Softmax").filter(is_current);
    };
    let [condition, zero, weights] = choice.inputs.as_slice() else { return None };
    let is_nan = view.only(condition, "IsNaN")?;
    let is_its = is_nan.input(0) == Some(weights) && view.scalar(zero) == Some(0.0);
    view.made_by(weights, "Softmax")
        .filter(is_current)
        .filter(|_| is_its && view.uses.get(weights.as_str()) == Some(&2))
}

fn two_inputs<'a>(node: &'a Node, operator: &str) -> Option<(&'a str, &'a str)> {
    match node.inputs.as_slice() {
        [a, b] if node.operator == operator => Some((a, b)),
        _ => None,
    }
}

/// A product that is scaled by a constant.
fn scale<'a>(view: &View<'a>, name: &str) -> Option<(&'a str, f64)> {
    let (scores, factor) = scaled(view, name)?;
    view.only(scores, "MatMul").map(|_| (scores, factor))
}

/// A value that is scaled by a constant and read nowhere else.
fn scaled<'a>(view: &View<'a>, name: &str) -> Option<(&'a str, f64)> {
    view.scaled(view.only(name, "Mul").or_else(|| view.only(name, "Div"))?)
}

/// A value without its constant factor, which may also precede transposes and reshapes: these are done anew
/// in `nodes`.
fn unscaled(view: &View<'_>, name: &str, nodes: &mut Vec<Node>) -> (String, f64) {
    if let Some((inner, factor)) = scaled(view, name) {
        let (inner, more) = unscaled(view, inner, nodes);
        return (inner, factor * more);
    }
    let moves = view.only(name, "Transpose").or_else(|| view.only(name, "Reshape"));
    if let Some((node, input)) = moves.and_then(|node| Some((node, node.input(0)?))) {
        let (input, factor) = unscaled(view, input, nodes);
        // A factor near 1 stays where it is.
        if (factor - 1.0).abs() > 1e-3 {
            let mut node = node.clone();
            let moved = format!("{name}, not scaled");
            (node.inputs[0], node.outputs) = (input, vec![moved.clone()]);
            nodes.push(node);
            return (moved, factor);
        }
    }
    (name.to_owned(), 1.0)
}

/// The keys whose transposed vectors a value has, and the factor of these.
fn untransposed(view: &View<'_>, name: &str, nodes: &mut Vec<Node>) -> Option<(String, f64)> {
    let (name, factor) = scaled(view, name).unwrap_or((name, 1.0));
    let transpose = view.made_by(name, "Transpose")?;
    let (input, more) = unscaled(view, transpose.input(0)?, nodes);
    let mut axes = transpose.ints("perm").filter(|axes| axes.len() == 4)?.to_vec();
    axes.swap(2, 3);
    if axes == [0, 1, 2, 3] {
        return Some((input, factor * more));
    }
    let mut node = transpose.clone();
    let keys = format!("{name}, as keys of {}", nodes.len());
    node.attributes.insert("perm".to_owned(), Attribute::Ints(axes));
    (node.inputs, node.outputs) = (vec![input], vec![keys.clone()]);
    nodes.push(node);
    Some((keys, factor * more))
}
