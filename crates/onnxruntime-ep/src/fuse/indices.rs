//! Lookups whose indices are looked at on the host.

use super::{View, replacing};
use crate::model::{Attribute, Node};
use crate::ops::{MICROSOFT, OWN};

/// A lookup in two steps: the check of the indices, which a captured run repeats on the host, and the lookup
/// itself.
pub(super) fn checked(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    let is_checked = last.attributes.contains_key("checked");
    if last.operator != "Gather" || !last.domain.is_empty() || is_checked {
        return None;
    }
    let [table, indices] = last.inputs.as_slice() else { return None };
    if view.graph.constants.contains_key(indices) {
        return None;
    }
    let checked = format!("{} of {}", indices, last.outputs.first()?);
    let mut check = replacing(last, "Indices", &[indices, table]);
    check.domain = OWN.to_owned();
    check.outputs = vec![checked.clone()];
    check.attributes = last.attributes.clone();
    let mut lookup = replacing(last, "Gather", &[table, &checked]);
    lookup.attributes = last.attributes.clone();
    lookup.attributes.insert("checked".to_owned(), Attribute::Int(1));
    Some(vec![check, lookup])
}

/// A rotation whose positions are looked at before, as the indices of a lookup are.
pub(super) fn positions(view: &View<'_>, last: &Node) -> Option<Vec<Node>> {
    let (place, table) = match last.domain.as_str() {
        "" => (3, 1),
        MICROSOFT => (1, 2),
        _ => return None,
    };
    let is_checked = |name: &str| view.producers.get(name).is_some_and(|node| node.operator == "Indices");
    let (positions, table) = (last.input(place)?, last.input(table)?);
    if last.operator != "RotaryEmbedding" || is_checked(positions) {
        return None;
    }
    let checked = format!("{positions} of {}", last.outputs.first()?);
    let mut check = replacing(last, "Indices", &[positions, table]);
    check.domain = OWN.to_owned();
    check.outputs = vec![checked.clone()];
    // Positions are not counted from the end.
    check.attributes.insert("from_start".to_owned(), Attribute::Int(1));
    let mut rotation = last.clone();
    rotation.inputs[place] = checked;
    Some(vec![check, rotation])
}
