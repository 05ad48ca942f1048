//! Constants of 8 bits: as numbers, and as those that they stand for.

use std::sync::Arc;

use backend_api::ComputeBackend;

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::Graph;
use crate::numbers::Numbers;
use crate::ops::{self, Call};
use crate::tensor::{Tensor, elements};
use crate::workspace::Workspace;

/// Makes numbers of constant bytes that a node reads, which come as words.
pub(crate) fn unpack(graph: &mut Graph) -> Result<()> {
    for name in graph.nodes.iter().flat_map(|node| &node.inputs) {
        let Some(known) = graph.types.get(name) else { continue };
        let Some(kind) = known.kind.filter(|kind| kind.is_bytes()) else { continue };
        let Some(constant) = graph.constants.get_mut(name).filter(|constant| constant.kind == Kind::U32)
        else {
            continue;
        };
        // A single number has no shape that is known.
        let extents: Option<Vec<usize>> =
            known.shape.as_ref().map_or(Some(vec![]), |shape| shape.iter().copied().collect());
        let shape = extents.ok_or_else(|| Error::invalid("a constant of an unknown shape"))?;
        let bytes = constant.device_bytes_read()?;
        let bytes = bytes.get(..elements(&shape)?).ok_or_else(|| Error::invalid("too few constant bytes"))?;
        *constant = Tensor::host(kind, shape, Numbers::decode(kind, bytes))?;
    }
    Ok(())
}

/// Computes what constant bytes stand for, once for all runs.
pub(crate) fn fold(graph: &mut Graph, backend: &Arc<dyn ComputeBackend>) -> Result<()> {
    let mut made = Vec::new();
    for node in graph.nodes.iter().filter(|node| node.operator == "DequantizeLinear") {
        let given = node.inputs.iter().filter(|name| !name.is_empty());
        if !given.clone().all(|name| graph.constants.contains_key(name)) {
            continue;
        }
        let (Some(row), Some(output)) = (ops::find(node), node.outputs.first()) else { continue };
        let inputs: Vec<Option<Tensor>> =
            node.inputs.iter().map(|name| graph.constants.get(name).cloned()).collect();
        let call = Call { node, memory: Workspace::new(backend), backend: &**backend, inputs: &inputs };
        let folded = (row.run)(&call)?.into_iter().next();
        made.extend(folded.map(|tensor| (output.clone(), tensor)));
    }
    graph.nodes.retain(|node| !made.iter().any(|(name, _)| node.outputs.first() == Some(name)));
    graph.constants.extend(made);
    // What nobody reads any more is as large as what was made of it.
    let read: std::collections::HashSet<&String> = graph.nodes.iter().flat_map(|node| &node.inputs).collect();
    let outputs = &graph.outputs;
    graph.constants.retain(|name, _| read.contains(name) || outputs.contains(name));
    Ok(())
}
