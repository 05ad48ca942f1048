//! The subgraphs that a session's provider takes.

use backend_api::ComputeBackend;

use crate::error::Result;
use crate::model::Graph;
use crate::ops;
use crate::options::{Options, Scope};
use crate::partition::partition;
use crate::support::{Abilities, supports};

/// What is taken of a graph, and what isn't.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    /// Nodes of each subgraph, by their place in the graph.
    pub(crate) subgraphs: Vec<Vec<usize>>,
    /// Nodes that are left to ONNX Runtime, and why.
    pub(crate) refused: Vec<(String, String)>,
}

/// Chooses convex subgraphs of nodes that the backend can compute and that are worth it.
pub(crate) fn claim(graph: &Graph, options: &Options, backend: &dyn ComputeBackend) -> Result<Claim> {
    let abilities = Abilities::of(backend)?;
    let mut claim = Claim::default();
    let mut taken = Vec::with_capacity(graph.nodes.len());
    for node in &graph.nodes {
        let verdict = supports(graph, node, abilities);
        taken.push(verdict.is_ok());
        if let Err(reason) = verdict {
            claim.refused.push((node.label(), reason));
        }
    }
    for subgraph in partition(graph, &taken) {
        let nodes = || subgraph.iter().filter_map(|&i| graph.nodes.get(i));
        if options.scope == Scope::All || nodes().any(ops::is_heavy) {
            claim.subgraphs.push(subgraph);
        } else {
            let reason = "no product, convolution, attention or recurrent layer in its part (the option claim takes it)";
            claim.refused.extend(nodes().map(|node| (node.label(), reason.to_owned())));
        }
    }
    Ok(claim)
}
