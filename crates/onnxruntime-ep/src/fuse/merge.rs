//! Products of one input with several matrices, such as the projections of attention: one product with the
//! matrices side by side, whose columns are split again without a copy.

use std::collections::HashMap;
use std::sync::Arc;

use backend_api::ComputeBackend;

use crate::error::Result;
use crate::model::{Graph, Node};
use crate::numbers::Numbers;
use crate::ops::{self, Device};
use crate::tensor::Tensor;
use crate::workspace::Workspace;

/// Merges what it can.
pub(crate) fn merge(graph: &mut Graph, backend: &Arc<dyn ComputeBackend>) -> Result<()> {
    for group in groups(graph) {
        let device = Device { memory: Workspace::new(backend), backend: &**backend };
        let Some(merged) = merged(graph, &group, device)? else { continue };
        let Some(&first) = group.first() else { continue };
        for &i in group.iter().skip(1) {
            // Pruned below: nobody reads a value without a name.
            graph.nodes[i].outputs.clear();
        }
        graph.nodes.splice(first..=first, merged);
        // Places behind the first node are others now.
        graph.prune();
        return merge(graph, backend);
    }
    Ok(())
}

/// Places of products that could be one.
fn groups(graph: &Graph) -> Vec<Vec<usize>> {
    let mut readers: HashMap<&str, Vec<&Node>> = HashMap::new();
    for node in &graph.nodes {
        node.reads().for_each(|name| readers.entry(name).or_default().push(node));
    }
    let reads_views = |node: &&Node| ops::find(node).is_some_and(|row| row.takes_views);
    let mut found: HashMap<(&str, usize), Vec<usize>> = HashMap::new();
    for (i, node) in graph.nodes.iter().enumerate() {
        let [x, weight, ..] = node.inputs.as_slice() else { continue };
        let (Some(weight), [output]) = (graph.constants.get(weight), node.outputs.as_slice()) else {
            continue;
        };
        let of = readers.get(output.as_str()).map_or(&[][..], Vec::as_slice);
        let is_scaled = node.float("alpha", 1.0) != 1.0 || !node.text("activation").is_empty();
        let is_transposed = node.int("transA", 0) != 0 || node.int("transB", 0) != 0;
        let is_plain = node.operator == "MatMul" && node.domain.is_empty() && !is_scaled && !is_transposed;
        let is_bias = |name: &String| graph.constants.get(name).is_some_and(|bias| bias.rank() == 1);
        let is_split = !of.is_empty() && of.iter().all(reads_views) && !graph.outputs.contains(output);
        let has_biases = node.inputs.iter().skip(2).all(is_bias) && weight.kind.is_float();
        if let (true, true, true, &[k, _]) = (is_plain, is_split, has_biases, weight.shape.as_slice()) {
            found.entry((x, k)).or_default().push(i);
        }
    }
    let mut groups: Vec<Vec<usize>> = found.into_values().filter(|group| group.len() > 1).collect();
    groups.sort();
    groups
}

/// The product and the split that take the place of a group; `None` if its element types differ.
fn merged(graph: &mut Graph, group: &[usize], device: Device<'_>) -> Result<Option<Vec<Node>>> {
    let nodes: Vec<Node> = group.iter().filter_map(|&i| graph.nodes.get(i).cloned()).collect();
    let constant = |node: &Node, i: usize| node.input(i).and_then(|name| graph.constants.get(name)).cloned();
    let weights: Vec<Tensor> = nodes.iter().filter_map(|node| constant(node, 1)).collect();
    let (Some(first), Some(node)) = (weights.first(), nodes.first()) else { return Ok(None) };
    if weights.iter().any(|weight| weight.kind != first.kind) || weights.len() != nodes.len() {
        return Ok(None);
    }
    let name = |what: &str| format!("{what} of {}", node.outputs.concat());
    let mut product = Node { outputs: vec![name("products")], ..node.clone() };
    let columns = |weight: &Tensor| weight.shape.last().copied().unwrap_or(0);
    let mut inputs = vec![node.inputs[0].clone(), name("matrices")];
    let matrix = device.concat(&weights.iter().collect::<Vec<_>>(), 1)?;
    let mut made = vec![(name("matrices"), matrix)];
    if nodes.iter().any(|node| node.input(2).is_some()) {
        let bias = |(node, weight): (&Node, &Tensor)| match constant(node, 2) {
            Some(bias) => Ok(bias),
            None => {
                let zeros = Numbers::Float(vec![0.0; columns(weight)]);
                Tensor::host(first.kind, vec![columns(weight)], zeros)
            }
        };
        let biases = nodes.iter().zip(&weights).map(bias).collect::<Result<Vec<_>>>()?;
        if biases.iter().any(|bias| bias.kind != first.kind) {
            return Ok(None);
        }
        made.push((name("biases"), device.concat(&biases.iter().collect::<Vec<_>>(), 0)?));
        inputs.push(name("biases"));
    }
    product.inputs = inputs;
    let widths = weights.iter().map(|weight| columns(weight) as i64).collect();
    made.push((name("widths"), Tensor::vector(widths)));
    let split = Node {
        operator: "Split".to_owned(),
        since: 18,
        inputs: vec![name("products"), name("widths")],
        outputs: nodes.iter().flat_map(|node| node.outputs.clone()).collect(),
        attributes: [("axis".to_owned(), crate::model::Attribute::Int(-1))].into(),
        ..node.clone()
    };
    graph.constants.extend(made);
    Ok(Some(vec![product, split]))
}
