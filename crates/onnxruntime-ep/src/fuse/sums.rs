//! Sums that are normalised and read elsewhere too, as between the layers of a transformer that normalises before
//! each: the normalisation's kernel writes them.

use std::collections::HashMap;

use crate::model::{Graph, Node};

/// Puts a normalisation in the place of each sum that it reads besides others.
pub(super) fn made_by_normalisations(graph: &mut Graph) {
    let uses: HashMap<String, usize> =
        graph.uses().into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    let mut sums: HashMap<String, usize> = HashMap::new();
    for i in 0..graph.nodes.len() {
        let node = &graph.nodes[i];
        if is_sum(graph, node) && uses.get(&node.outputs[0]).is_some_and(|&count| count > 1) {
            sums.insert(node.outputs[0].clone(), i);
            continue;
        }
        if !is_normalisation(graph, node) {
            continue;
        }
        // Another normalisation of the sum reads it as any node does.
        let Some(place) = node.input(0).and_then(|name| sums.remove(name)) else { continue };
        let (mut fused, sum) = (node.clone(), &graph.nodes[place]);
        fused.inputs.resize(4, String::new());
        [fused.inputs[0], fused.inputs[3]] = [sum.inputs[0].clone(), sum.inputs[1].clone()];
        fused.outputs.resize(4, String::new());
        fused.outputs[3].clone_from(&sum.outputs[0]);
        // Earlier than before, where the sum's other readers find it; its factors are constants.
        graph.nodes[place] = fused;
        graph.nodes[i].outputs.clear();
    }
    graph.nodes.retain(|node| !node.outputs.is_empty());
}

/// A sum of two tensors that change from run to run.
fn is_sum(graph: &Graph, node: &Node) -> bool {
    let changes = |name: &String| !name.is_empty() && !graph.constants.contains_key(name);
    node.operator == "Add"
        && node.domain.is_empty()
        && matches!((node.inputs.as_slice(), node.outputs.as_slice()), ([a, b], [_]) if changes(a) && changes(b))
}

/// A normalisation of one tensor, with constant factors.
fn is_normalisation(graph: &Graph, node: &Node) -> bool {
    let is_known = |i: usize| node.input(i).is_none_or(|name| graph.constants.contains_key(name));
    matches!(node.operator.as_str(), "LayerNormalization" | "SimplifiedLayerNormalization")
        && node.domain.is_empty()
        && node.inputs.len() <= 3
        && (1..4).all(|i| is_known(i) && !node.has_output(i))
}
