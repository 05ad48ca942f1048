//! Products whose rows are read or written in another order: the order of rows is none of a product's business.

use super::{View, replacing};
use crate::model::Node;
use crate::ops;

/// Operators whose results may be views that aren't packed.
const VIEWS: &[&str] =
    &["Transpose", "Reshape", "Split", "Slice", "Gather", "Squeeze", "Unsqueeze", "Expand", "Attention"];

/// A product of which the result's rows are put into another order, and whose input is in another order itself, as
/// that of attention over tokens first: the order of the input is changed instead, which often undoes the one before.
pub(super) fn transposed_result(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    let perm = of_rows(last)?;
    let product = view.only(last.input(0)?, "MatMul").filter(|product| has_own_rows(view, product))?;
    let input = product.input(0)?;
    let flat = view.made_by(input, "Reshape").and_then(|reshape| reshape.input(0));
    view.made_by(flat.unwrap_or(input), "Transpose")?;
    let rank = view.graph.types.get(last.input(0)?)?.shape.as_ref()?.len();
    if rank != perm.len() {
        return None;
    }
    let ordered = format!("{input} for {}", last.outputs.first()?);
    let mut order = replacing(last, "Transpose", &[input]);
    order.attributes = last.attributes.clone();
    order.outputs = vec![ordered.clone()];
    let mut node = Node { outputs: last.outputs.clone(), ..product.clone() };
    node.inputs[0] = ordered;
    Some(vec![order, node])
}

/// A product of rows in another order whose readers take views: it reads the rows as they are, and its result is a view
/// in the other order.
pub(super) fn transposed_input(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    if last.operator != "MatMul" || !last.domain.is_empty() || !has_own_rows(view, last) {
        return None;
    }
    let order = view.made_by(last.input(0)?, "Transpose").filter(|order| of_rows(order).is_some())?;
    let unordered = order.input(0)?;
    // What is no view is packed, and needs no copy.
    let made_by = view.producers.get(unordered).map(|node| node.operator.as_str());
    if made_by.is_some_and(|operator| VIEWS.contains(&operator)) {
        return None;
    }
    let output = last.outputs.first()?;
    let mut readers =
        view.graph.nodes.iter().filter(|node| node.reads().any(|name| name == output)).peekable();
    readers.peek()?;
    if view.graph.outputs.contains(output)
        || readers.any(|node| !ops::find(node).is_some_and(|row| row.takes_views))
    {
        return None;
    }
    let rows = format!("{output} in another order");
    let mut product = Node { outputs: vec![rows.clone()], ..last.clone() };
    product.inputs[0] = unordered.to_owned();
    let mut node = replacing(last, "Transpose", &[&rows]);
    node.attributes = order.attributes.clone();
    Some(vec![product, node])
}

/// The axes of a transpose that leaves the last one where it is.
fn of_rows(node: &Node) -> Option<&[i64]> {
    let perm = node.ints("perm").filter(|_| node.operator == "Transpose" && node.domain.is_empty())?;
    perm.last().filter(|&&last| last + 1 == perm.len() as i64).map(|_| perm)
}

/// Whether each row of a product depends on one row of its input: a constant matrix, and no bias but a row.
fn has_own_rows(view: &View<'_>, product: &Node) -> bool {
    let constant = |i: usize| product.input(i).and_then(|name| view.graph.constants.get(name));
    constant(1).is_some_and(|matrix| matrix.rank() == 2)
        && product
            .input(2)
            .is_none_or(|name| view.graph.constants.get(name).is_some_and(|bias| bias.rank() == 1))
        && product.int("transA", 0) == 0
}
