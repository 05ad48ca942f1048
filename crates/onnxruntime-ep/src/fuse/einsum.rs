//! Einstein sums that are products of matrices.

use super::{View, replacing};
use crate::model::{Attribute, Node};
use crate::ops::{Form, product_form};

/// A product of matrices as such, so that other rules find it.
pub(super) fn product(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    let [a, b] = last.inputs.as_slice() else { return None };
    if last.operator != "Einsum" || !last.domain.is_empty() {
        return None;
    }
    let shape = |name: &String| view.graph.types.get(name)?.shape.as_ref();
    let (of_a, of_b) = (shape(a)?, shape(b)?);
    let Form { is_swapped, is_transposed } = product_form(last.text("equation"), [of_a.len(), of_b.len()])?;
    let (a, of_a, b, of_b) = if is_swapped { (b, of_b, a, of_a) } else { (a, of_a, b, of_b) };
    // A sum repeats a single element, where a product is an error.
    let rows = of_b.len().checked_sub(if is_transposed { 1 } else { 2 })?;
    let (inner, other) = (of_a.last()?.as_ref()?, of_b.get(rows)?.as_ref()?);
    (inner == other).then(|| {
        let mut node = replacing(last, "MatMul", &[a.as_str(), b.as_str()]);
        if is_transposed {
            node.attributes.insert("transB".to_owned(), Attribute::Int(1));
        }
        vec![node]
    })
}
