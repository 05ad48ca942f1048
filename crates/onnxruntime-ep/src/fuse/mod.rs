//! Fusions: several operators that one operation of the backend computes.
//!
//! ONNX Runtime folds constants before it asks for claims, and nothing more: activations, biases and
//! attention arrive as the operators that they consist of. Each rule looks at the last node of a pattern and
//! gives the node that takes its place; what nobody reads then is pruned.

mod attention;
mod bytes;
mod einsum;
mod epilogue;
mod gelu;
mod indices;
mod linear;
mod merge;
mod norm;
mod quantized;
mod rows;
mod sums;

pub(crate) use bytes::{fold, unpack};
pub(crate) use merge::merge;
pub(crate) use quantized::{format, pack};

use std::cell::RefCell;
use std::collections::HashMap;

use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

/// The nodes that take the place of the last node of a pattern.
type Rule = fn(&View<'_>, &Node) -> Option<Vec<Node>>;

/// In the order in which they build on each other.
const RULES: &[Rule] = &[
    einsum::product,
    linear::layer,
    linear::reshape,
    gelu::exact,
    gelu::silu,
    gelu::hard_swish,
    norm::layer,
    norm::root_mean_square,
    attention::attention,
    gelu::gated,
    epilogue::bias,
    epilogue::residual,
    // What activations follow may be a fusion itself.
    epilogue::activation,
    rows::transposed_result,
    rows::transposed_input,
    indices::checked,
    indices::positions,
];

/// Fuses what it can.
pub(crate) fn fuse(graph: &mut Graph) {
    for rule in RULES {
        let view = View::new(graph);
        let found: Vec<Option<Vec<Node>>> = graph.nodes.iter().map(|node| rule(&view, node)).collect();
        if found.iter().any(Option::is_some) {
            let nodes = std::mem::take(&mut graph.nodes);
            let replaced = nodes.into_iter().zip(found);
            graph.nodes = replaced.flat_map(|(node, found)| found.unwrap_or_else(|| vec![node])).collect();
            graph.prune();
        }
    }
    sums::made_by_normalisations(graph);
}

/// A graph and who makes and reads its values.
struct View<'a> {
    graph: &'a Graph,
    producers: HashMap<&'a str, &'a Node>,
    uses: HashMap<&'a str, usize>,
    /// Constants that were asked whether they are zeros.
    zeros: RefCell<HashMap<String, bool>>,
}

impl<'a> View<'a> {
    fn new(graph: &'a Graph) -> Self {
        let named = |node: &'a Node| node.outputs.iter().map(move |name| (name.as_str(), node));
        let producers = graph.nodes.iter().flat_map(named).collect();
        Self { graph, producers, uses: graph.uses(), zeros: RefCell::default() }
    }

    /// Whether a value is a constant of floating-point zeros, and no larger than it is worth to look at.
    fn is_zero(&self, name: &str) -> bool {
        const MAX_BYTES: usize = 64 << 20;
        if let Some(&known) = self.zeros.borrow().get(name) {
            return known;
        }
        let bytes = |constant: &Tensor| constant.count() * constant.kind.size();
        let constant = self.graph.constants.get(name).filter(|constant| constant.kind.is_float());
        let is_zero = constant.filter(|constant| bytes(constant) <= MAX_BYTES).is_some_and(|constant| {
            let mut read = vec![1; bytes(constant)];
            // A device that can't be read any more fails what is compiled next.
            constant.read(&mut read).is_ok() && read.iter().all(|&byte| byte == 0)
        });
        self.zeros.borrow_mut().insert(name.to_owned(), is_zero);
        is_zero
    }

    /// The node of an operator of ONNX's that makes a value.
    fn made_by(&self, name: &str, operator: &str) -> Option<&'a Node> {
        let node = self.producers.get(name).copied()?;
        (node.operator == operator && node.domain.is_empty()).then_some(node)
    }

    /// The node that makes a value which nobody else reads.
    fn only(&self, name: &str, operator: &str) -> Option<&'a Node> {
        self.made_by(name, operator).filter(|_| self.uses.get(name) == Some(&1))
    }

    /// The number of a constant that has only one, and no dimensions that a result would get from it.
    fn scalar(&self, name: &str) -> Option<f64> {
        let is_scalar = |constant: &&Tensor| constant.count() == 1 && constant.rank() <= 1;
        let graph = self.graph;
        let constant = graph.unrounded.get(name).or_else(|| graph.constants.get(name)).filter(is_scalar)?;
        constant.numbers().ok()?.floats().first().copied()
    }

    /// Whether a number that a value is computed with is `wanted`, but for rounding: in f16, or to the five digits with
    /// which some models in f32 write √2.
    fn is_close(&self, value: &str, number: f64, wanted: f64) -> bool {
        let kind = self.graph.types.get(value).and_then(|known| known.kind);
        let tolerance = if kind == Some(Kind::F16) { 1e-3 } else { 2e-5 };
        (number - wanted).abs() <= tolerance * wanted.abs()
    }

    /// A factor, also where it divides: the other input, and the factor.
    fn scaled(&self, node: &'a Node) -> Option<(&'a str, f64)> {
        match (node.operator.as_str(), node.inputs.as_slice()) {
            ("Mul", [a, b]) => match (self.scalar(a), self.scalar(b)) {
                (_, Some(factor)) => Some((a, factor)),
                (Some(factor), _) => Some((b, factor)),
                _ => None,
            },
            ("Div", [a, b]) => Some((a, 1.0 / self.scalar(b)?)),
            _ => None,
        }
    }
}

/// Both orders of a node's two inputs.
fn orders(node: &Node) -> Vec<(&str, &str)> {
    match node.inputs.as_slice() {
        [a, b] => vec![(a, b), (b, a)],
        _ => Vec::new(),
    }
}

/// A node of ONNX's in the place of `last`.
fn replacing(last: &Node, operator: &str, inputs: &[&str]) -> Node {
    Node {
        operator: operator.to_owned(),
        domain: String::new(),
        inputs: inputs.iter().map(|&name| name.to_owned()).collect(),
        attributes: HashMap::new(),
        ..last.clone()
    }
}

#[cfg(test)]
mod tests;
