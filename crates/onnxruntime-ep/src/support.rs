//! Which nodes the provider can compute.

use backend_api::ComputeBackend;

use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::ops;
use crate::options::NAME;

/// What a device can do, as far as nodes depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Whether it computes with f16.
    pub(crate) f16: bool,
}

impl Abilities {
    /// The abilities of a backend's device.
    pub(crate) fn of(backend: &dyn ComputeBackend) -> crate::error::Result<Self> {
        Ok(Self { f16: backend.capabilities()?.f16 })
    }
}

/// Whether a node is computed as ONNX has it; the error says why it isn't.
pub(crate) fn supports(graph: &Graph, node: &Node, abilities: Abilities) -> Result<(), String> {
    if !matches!(node.provider.as_str(), "" | NAME) {
        return Err(format!("{} has it", node.provider));
    }
    let Some(row) = ops::find(node) else { return Err("the provider has no such operator".to_owned()) };
    let used = node.inputs.iter().chain(&node.outputs).filter(|name| !name.is_empty());
    for name in used {
        let known = graph.types.get(name);
        let Some(kind) = known.and_then(|known| known.kind) else {
            return Err(format!("the element type of {name} isn't supported"));
        };
        if kind.is_bytes() && !row.takes_bytes {
            return Err(format!("the element type of {name} isn't supported"));
        }
        if kind == Kind::F16 && !abilities.f16 {
            return Err("the device has no f16".to_owned());
        }
        if known.and_then(|known| known.shape.as_ref()).is_some_and(|shape| shape.len() > MAX_RANK) {
            return Err(format!("{name} has more than {MAX_RANK} dimensions"));
        }
    }
    if graph.input_kind(node, 0).is_some_and(|kind| !row.kinds.has(kind)) {
        return Err("the element type isn't supported here".to_owned());
    }
    (row.check)(graph, node)
}

/// As many dimensions as strided operations take, whatever can be merged.
const MAX_RANK: usize = backend_api::desc::MAX_RANK;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ValueType;

    #[test]
    fn a_node_of_another_provider_is_not_taken() {
        let mut node = Node {
            operator: "MatMul".to_owned(),
            inputs: vec!["a".to_owned(), "b".to_owned()],
            outputs: vec!["y".to_owned()],
            ..Node::default()
        };
        let known = || ValueType { kind: Some(Kind::F32), shape: Some(vec![Some(2), None]) };
        let types = ["a", "b", "y"].map(|name| (name.to_owned(), known()));
        let graph = Graph { types: types.into(), ..Graph::default() };
        for (provider, is_taken) in [("", true), (NAME, true), ("CUDAExecutionProvider", false)] {
            node.provider = provider.to_owned();
            let verdict = supports(&graph, &node, Abilities { f16: false });
            assert_eq!(verdict.is_ok(), is_taken, "{provider:?}: {verdict:?}");
        }
    }
}
