//! Attention as the products and the softmax that it consists of.

use super::{View, orders, replacing};
use crate::model::{Attribute, Node};

/// `softmax(scale · Q·Kᵀ + mask) · V` of four dimensions, where K and V have vectors of one length.
pub(super) fn attention(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    let (weights, v) = two_inputs(last, "MatMul")?;
    let softmax = view.only(weights, "Softmax").filter(|node| node.since >= 13)?;
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
    let (q, transposed) = two_inputs(view.only(name, "MatMul")?, "MatMul")?;
    let transpose = view.only(transposed, "Transpose")?;
    let k = transpose.input(0).filter(|_| transpose.ints("perm") == Some(&[0, 1, 3, 2]))?;
    let shape = |name: &str| view.graph.types.get(name)?.shape.as_ref().filter(|shape| shape.len() == 4);
    let ([heads_q, width_q], [heads_k, width_k], [heads_v, width_v]) =
        (ends(shape(q)?), ends(shape(k)?), ends(shape(v)?));
    let is_one = |a: Option<usize>, b: Option<usize>, c: Option<usize>| a.is_some() && a == b && b == c;
    let batch = |name: &str| shape(name).and_then(|shape| shape.first().copied());
    if batch(q) != batch(k) || batch(q) != batch(v) {
        return None;
    }
    if !is_one(heads_q, heads_k, heads_v) || !is_one(width_q, width_k, width_v) {
        return None;
    }
    // A mask of more than the scores' dimensions, or of none that is known, is none of attention's.
    if let Some(mask) = mask {
        view.graph.types.get(mask)?.shape.as_ref().filter(|shape| (2..=4).contains(&shape.len()))?;
    }
    let mut inputs = vec![q, k, v];
    inputs.extend(mask);
    let mut node = replacing(last, "Attention", &inputs);
    node.attributes.insert("scale".to_owned(), Attribute::Float(factor));
    Some(vec![node])
}

/// Heads and width of `[batch, heads, tokens, width]`.
fn ends(shape: &[Option<usize>]) -> [Option<usize>; 2] {
    [1, 3].map(|k| shape.get(k).copied().flatten())
}

fn two_inputs<'a>(node: &'a Node, operator: &str) -> Option<(&'a str, &'a str)> {
    match node.inputs.as_slice() {
        [a, b] if node.operator == operator => Some((a, b)),
        _ => None,
    }
}

/// A product that is scaled by a constant.
fn scale<'a>(view: &View<'a>, name: &str) -> Option<(&'a str, f64)> {
    let node = view.only(name, "Mul").or_else(|| view.only(name, "Div"))?;
    let (scores, factor) = view.scaled(node)?;
    view.only(scores, "MatMul").map(|_| (scores, factor))
}
