//! Lookups whose indices are looked at on the host.

use super::{View, replacing};
use crate::model::{Attribute, Node};
use crate::ops::OWN;

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
