//! The provider's own form of a graph: copied from ONNX Runtime's, whose objects live only as long as a
//! callback.

use std::collections::{HashMap, HashSet};

use crate::kind::Kind;
use crate::tensor::Tensor;

/// The name of a value, unique in its graph.
pub(crate) type Name = String;

/// What is known of a value before it is computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ValueType {
    /// The element type; `None` for one that the provider doesn't compute with, or for no tensor.
    pub(crate) kind: Option<Kind>,
    /// The extents, `None` for one that changes from run to run; as a whole `None` if not even the rank is
    /// known.
    pub(crate) shape: Option<Vec<Option<usize>>>,
}

/// An attribute of a node.
#[derive(Clone, Debug)]
pub(crate) enum Attribute {
    /// A number.
    Int(i64),
    /// A list of numbers.
    Ints(Vec<i64>),
    /// A number.
    Float(f64),
    /// A list of numbers.
    Floats(Vec<f64>),
    /// A text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// A tensor.
    Tensor(Tensor),
    /// A graph or a type that the provider has no use for.
    Other,
}

/// A node of a graph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// Its name, for messages.
    pub(crate) name: String,
    /// The operator's name.
    pub(crate) operator: String,
    /// The operator's domain, empty for ONNX's own.
    pub(crate) domain: String,
    /// The version of the operator set in which the operator got its present meaning.
    pub(crate) since: i32,
    /// Names of the inputs, empty for one that is left out.
    pub(crate) inputs: Vec<Name>,
    /// Names of the outputs, empty for one that nobody uses.
    pub(crate) outputs: Vec<Name>,
    /// Names of the values of this graph that the node's branches or its loop's body read.
    pub(crate) captured: Vec<Name>,
    /// The provider that has taken the node, empty if none has.
    pub(crate) provider: String,
    /// Its attributes by name.
    pub(crate) attributes: HashMap<String, Attribute>,
}

/// A graph: nodes in topological order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    /// The nodes, each after those whose outputs it reads.
    pub(crate) nodes: Vec<Node>,
    /// Element types and shapes of values by name.
    pub(crate) types: HashMap<Name, ValueType>,
    /// Values that are the same in every run, of which `constants` may leave out large ones.
    pub(crate) unchanging: HashSet<Name>,
    /// Unchanging values that were read.
    pub(crate) constants: HashMap<Name, Tensor>,
    /// Single numbers among the constants as the model has them, where the constants were rounded.
    pub(crate) unrounded: HashMap<Name, Tensor>,
    /// Values that a run is given, in order.
    pub(crate) inputs: Vec<Name>,
    /// Values that a run gives back, in order.
    pub(crate) outputs: Vec<Name>,
}

impl Node {
    /// The node in messages: its name, or its first output where the model gives it none.
    pub(crate) fn label(&self) -> String {
        let output = self.outputs.iter().find(|output| !output.is_empty());
        match output.filter(|_| self.name.is_empty()) {
            Some(output) => format!("node with output {output:?} ({})", self.operator),
            None => format!("node {:?} ({})", self.name, self.operator),
        }
    }

    /// An attribute that is a whole number.
    pub(crate) fn int(&self, name: &str, otherwise: i64) -> i64 {
        match self.attributes.get(name) {
            Some(Attribute::Int(number)) => *number,
            _ => otherwise,
        }
    }

    /// An attribute that is a number.
    pub(crate) fn float(&self, name: &str, otherwise: f64) -> f64 {
        match self.attributes.get(name) {
            Some(Attribute::Float(number)) => *number,
            _ => otherwise,
        }
    }

    /// An attribute that is a text; empty if it is left out.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.attributes.get(name) {
            Some(Attribute::Text(text)) => text,
            _ => "",
        }
    }

    /// An attribute that is a list of whole numbers.
    pub(crate) fn ints(&self, name: &str) -> Option<&[i64]> {
        match self.attributes.get(name) {
            Some(Attribute::Ints(numbers)) => Some(numbers),
            _ => None,
        }
    }

    /// An attribute that is a list of numbers; empty if it is left out.
    pub(crate) fn floats(&self, name: &str) -> &[f64] {
        match self.attributes.get(name) {
            Some(Attribute::Floats(numbers)) => numbers,
            _ => &[],
        }
    }

    /// An attribute that is a list of texts.
    pub(crate) fn texts(&self, name: &str) -> Option<&[String]> {
        match self.attributes.get(name) {
            Some(Attribute::Texts(texts)) => Some(texts),
            _ => None,
        }
    }

    /// Every value that must be there before the node runs.
    pub(crate) fn reads(&self) -> impl Iterator<Item = &Name> {
        self.inputs.iter().chain(&self.captured)
    }

    /// The name of an input that isn't left out.
    pub(crate) fn input(&self, i: usize) -> Option<&str> {
        self.inputs.get(i).map(String::as_str).filter(|name| !name.is_empty())
    }

    /// Whether somebody may use output `i`.
    pub(crate) fn has_output(&self, i: usize) -> bool {
        self.outputs.get(i).is_some_and(|name| !name.is_empty())
    }
}

impl Graph {
    /// What is known of a node's input.
    pub(crate) fn input_type(&self, node: &Node, i: usize) -> Option<&ValueType> {
        self.types.get(node.input(i)?)
    }

    /// The element type of a node's input.
    pub(crate) fn input_kind(&self, node: &Node, i: usize) -> Option<Kind> {
        self.input_type(node, i)?.kind
    }

    /// The rank of a node's input.
    pub(crate) fn input_rank(&self, node: &Node, i: usize) -> Option<usize> {
        Some(self.input_type(node, i)?.shape.as_ref()?.len())
    }

    /// How often each value is read, by nodes and as an output of the graph.
    pub(crate) fn uses(&self) -> HashMap<&str, usize> {
        let mut uses = HashMap::new();
        let read = self.nodes.iter().flat_map(Node::reads).chain(&self.outputs);
        for name in read.filter(|name| !name.is_empty()) {
            *uses.entry(name.as_str()).or_default() += 1;
        }
        uses
    }

    /// Drops the nodes whose outputs nobody reads.
    pub(crate) fn prune(&mut self) {
        let mut needed: HashSet<&str> = self.outputs.iter().map(String::as_str).collect();
        let mut keep = vec![false; self.nodes.len()];
        for (node, keep) in self.nodes.iter().zip(&mut keep).rev() {
            *keep = node.outputs.iter().any(|name| needed.contains(name.as_str()));
            if *keep {
                needed.extend(node.reads().map(String::as_str));
            }
        }
        let mut keep = keep.into_iter();
        self.nodes.retain(|_| keep.next().unwrap_or(true));
    }
}
