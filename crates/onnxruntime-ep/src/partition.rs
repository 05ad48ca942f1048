//! Convex subgraphs: sets of nodes that no path leaves and enters again, so that each can run as one.

use std::collections::HashMap;

use crate::model::Graph;

/// The nodes of `graph` for which `taken` holds, in as few convex subgraphs as stages allow.
///
/// A node's stage is the number of times that a path to it changes from a node that isn't taken to one that
/// is. Stages never fall along a path, so a path that leaves the nodes of a stage through one that isn't
/// taken comes back in a later stage: all nodes of a stage are convex. Nodes of a stage that aren't connected
/// become subgraphs of their own.
pub(crate) fn partition(graph: &Graph, taken: &[bool]) -> Vec<Vec<usize>> {
    let mut producer: HashMap<&str, usize> = HashMap::new();
    let mut stage = vec![0usize; graph.nodes.len()];
    let mut groups = Groups::new(graph.nodes.len());
    for (i, node) in graph.nodes.iter().enumerate() {
        let is_taken = taken.get(i).copied().unwrap_or(false);
        let before: Vec<usize> =
            node.reads().filter_map(|name| producer.get(name.as_str()).copied()).collect();
        let from = |&j: &usize| stage[j] + usize::from(is_taken && !taken.get(j).copied().unwrap_or(false));
        stage[i] = before.iter().map(from).max().unwrap_or(0);
        if is_taken {
            for &j in before.iter().filter(|&&j| taken.get(j) == Some(&true) && stage[j] == stage[i]) {
                groups.join(i, j);
            }
        }
        producer.extend(node.outputs.iter().filter(|name| !name.is_empty()).map(|name| (name.as_str(), i)));
    }
    let mut subgraphs: Vec<Vec<usize>> = Vec::new();
    let mut place: HashMap<usize, usize> = HashMap::new();
    for i in (0..graph.nodes.len()).filter(|&i| taken.get(i) == Some(&true)) {
        let at = *place.entry(groups.find(i)).or_insert_with(|| {
            subgraphs.push(Vec::new());
            subgraphs.len() - 1
        });
        subgraphs[at].push(i);
    }
    subgraphs
}

/// Disjoint sets of nodes.
struct Groups(Vec<usize>);

impl Groups {
    fn new(count: usize) -> Self {
        Self((0..count).collect())
    }

    fn find(&mut self, mut i: usize) -> usize {
        while self.0[i] != i {
            self.0[i] = self.0[self.0[i]];
            i = self.0[i];
        }
        i
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Node;

    fn graph(nodes: &[(&[&str], &str)]) -> Graph {
        let node = |&(inputs, output): &(&[&str], &str)| Node {
            inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
            outputs: vec![output.to_owned()],
            ..Node::default()
        };
        Graph { nodes: nodes.iter().map(node).collect(), ..Graph::default() }
    }

    #[test]
    fn a_path_around_an_unsupported_node_is_cut() {
        // a → u → c and a → c: taking a and c together would need u both before and after.
        let graph = graph(&[(&["x"], "a"), (&["a"], "u"), (&["a", "u"], "c"), (&["c"], "d")]);
        assert_eq!(partition(&graph, &[true, false, true, true]), [vec![0], vec![2, 3]]);
        assert_eq!(partition(&graph, &[true; 4]), [vec![0, 1, 2, 3]]);
    }

    #[test]
    fn a_branch_that_reads_a_value_is_on_the_path() {
        // u → i, a → the branches of i, and c = a + i: taking a and c together would need i between them.
        let mut graph = graph(&[(&["x"], "u"), (&["u"], "a"), (&["cond"], "i"), (&["a", "i"], "c")]);
        graph.nodes[2].captured = vec!["a".to_owned()];
        assert_eq!(partition(&graph, &[false, true, false, true]), [vec![1], vec![3]]);
    }

    #[test]
    fn unconnected_nodes_are_apart() {
        let graph = graph(&[(&["x"], "a"), (&["y"], "b"), (&["a"], "c")]);
        assert_eq!(partition(&graph, &[true; 3]), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn no_subgraph_depends_on_itself() {
        // Random graphs of 12 nodes: following the edges from a subgraph through other nodes never leads back.
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize
        };
        for _ in 0..500 {
            let count = 12;
            let names: Vec<String> = (0..count).map(|i| format!("v{i}")).collect();
            let edges: Vec<Vec<usize>> =
                (0..count).map(|i| (0..i).filter(|_| random() % 4 == 0).collect()).collect();
            let nodes = (0..count).map(|i| Node {
                inputs: edges[i].iter().map(|&j| names[j].clone()).collect(),
                outputs: vec![names[i].clone()],
                ..Node::default()
            });
            let graph = Graph { nodes: nodes.collect(), ..Graph::default() };
            let taken: Vec<bool> = (0..count).map(|_| random() % 3 > 0).collect();
            let subgraphs = partition(&graph, &taken);
            assert_eq!(subgraphs.concat().len(), taken.iter().filter(|&&taken| taken).count());
            for subgraph in subgraphs {
                let mut outside = vec![false; count];
                for i in 0..count {
                    let inside = subgraph.contains(&i);
                    assert!(!(inside && edges[i].iter().any(|&j| outside[j])), "{subgraph:?} of {edges:?}");
                    outside[i] = !inside && edges[i].iter().any(|&j| outside[j] || subgraph.contains(&j));
                }
            }
        }
    }
}
