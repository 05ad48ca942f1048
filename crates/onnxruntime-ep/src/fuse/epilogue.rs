//! What follows a product, a convolution or precedes a normalisation, done by its kernel.

use super::{View, orders};
use crate::model::{Attribute, Node};

/// A constant row that is added to a product.
pub(super) fn bias(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    if last.operator != "Add" {
        return None;
    }
    orders(last).into_iter().find_map(|(product, bias)| {
        let product = view.only(product, "MatMul").filter(|node| node.inputs.len() == 2)?;
        let matrix = view.graph.constants.get(product.input(1)?).filter(|matrix| matrix.rank() == 2)?;
        let columns = matrix.shape[usize::from(product.int("transB", 0) == 0)];
        let row = view.graph.constants.get(bias).filter(|row| row.shape == [columns])?;
        (row.kind == matrix.kind).then(|| {
            let mut node = Node { outputs: last.outputs.clone(), ..product.clone() };
            node.inputs.push(bias.to_owned());
            vec![node]
        })
    })
}

/// A sum that is normalised and read nowhere else. Whether both have one shape, the run tells.
pub(super) fn residual(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    let is_its = matches!(last.operator.as_str(), "LayerNormalization" | "SimplifiedLayerNormalization");
    if !is_its || last.inputs.len() > 3 || last.has_output(1) || last.has_output(2) {
        return None;
    }
    let sum = view.only(last.input(0)?, "Add")?;
    let [a, b] = sum.inputs.as_slice() else { return None };
    if view.graph.constants.contains_key(a) || view.graph.constants.contains_key(b) {
        return None;
    }
    let mut node = last.clone();
    node.inputs =
        vec![a.clone(), last.input(1)?.to_owned(), last.input(2).unwrap_or_default().to_owned(), b.clone()];
    Some(vec![node])
}

/// An activation of a product or a convolution.
pub(super) fn activation(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    let name = match last.operator.as_str() {
        "Relu" => "Relu",
        "Gelu" if last.text("approximate") == "tanh" => "GeluTanh",
        "Gelu" => "Gelu",
        "Swish" if last.float("alpha", 1.0) == 1.0 => "Silu",
        _ => return None,
    };
    let input = last.input(0).filter(|_| last.domain.is_empty())?;
    let before = ["MatMul", "Gemm", "Conv"].into_iter().find_map(|operator| view.only(input, operator))?;
    if !before.text("activation").is_empty() {
        return None;
    }
    let mut node = Node { outputs: last.outputs.clone(), ..before.clone() };
    node.attributes.insert("activation".to_owned(), Attribute::Text(name.to_owned()));
    Some(vec![node])
}
