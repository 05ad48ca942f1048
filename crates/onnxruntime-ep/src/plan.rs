//! A compiled subgraph.

use std::collections::HashMap;
use std::sync::Arc;

use backend_api::ComputeBackend;

use crate::error::{Error, Result};
use crate::fuse::fuse;
use crate::model::{Graph, Name, Node};
use crate::ops::{self, Call, Run};
use crate::tensor::Tensor;

/// Nodes in order, and where each finds its inputs. Runs of several threads share it.
#[derive(Debug)]
pub(crate) struct Plan {
    backend: Arc<dyn ComputeBackend>,
    steps: Vec<Step>,
    /// The values before the first step: constants are there.
    initial: Vec<Option<Tensor>>,
    inputs: Vec<Name>,
    /// The place of each input.
    places: Vec<Option<usize>>,
    outputs: Vec<usize>,
}

/// A node and the places of its values.
#[derive(Debug)]
struct Step {
    node: Node,
    run: Run,
    inputs: Vec<Option<usize>>,
    outputs: Vec<Option<usize>>,
    /// Values that nobody reads afterwards, whose memory is given back.
    last: Vec<usize>,
}

impl Plan {
    /// Compiles a graph for a backend.
    pub(crate) fn new(mut graph: Graph, backend: &Arc<dyn ComputeBackend>) -> Result<Self> {
        graph.prune();
        fuse(&mut graph);
        let mut places: HashMap<Name, usize> = HashMap::new();
        let mut initial = Vec::new();
        let mut place = |name: &str, initial: &mut Vec<Option<Tensor>>| {
            if name.is_empty() {
                return None;
            }
            Some(*places.entry(name.to_owned()).or_insert_with(|| {
                initial.push(graph.constants.get(name).cloned());
                initial.len() - 1
            }))
        };
        let inputs: Vec<_> = graph.inputs.iter().map(|name| place(name, &mut initial)).collect();
        let mut steps = Vec::with_capacity(graph.nodes.len());
        for node in &graph.nodes {
            let row = ops::find(node)
                .ok_or_else(|| Error::invalid(format!("there is no operator {}", node.operator)))?;
            steps.push(Step {
                run: row.run,
                inputs: node.inputs.iter().map(|name| place(name, &mut initial)).collect(),
                outputs: node.outputs.iter().map(|name| place(name, &mut initial)).collect(),
                node: node.clone(),
                last: Vec::new(),
            });
        }
        let outputs: Vec<usize> = graph.outputs.iter().filter_map(|name| place(name, &mut initial)).collect();
        let mut seen: Vec<bool> = initial.iter().map(Option::is_some).collect();
        outputs.iter().for_each(|&output| seen[output] = true);
        for step in steps.iter_mut().rev() {
            for &value in step.inputs.iter().chain(&step.outputs).flatten() {
                if !std::mem::replace(&mut seen[value], true) {
                    step.last.push(value);
                }
            }
        }
        Ok(Self {
            backend: Arc::clone(backend),
            steps,
            initial,
            inputs: graph.inputs,
            places: inputs,
            outputs,
        })
    }

    /// What computes it.
    pub(crate) const fn backend(&self) -> &Arc<dyn ComputeBackend> {
        &self.backend
    }

    /// The names of the values that a run is given, in order.
    pub(crate) fn inputs(&self) -> &[Name] {
        &self.inputs
    }

    /// Computes the outputs, in order, of inputs in order.
    pub(crate) fn run(&self, inputs: Vec<Option<Tensor>>) -> Result<Vec<Tensor>> {
        let mut values = self.initial.clone();
        for (&place, input) in self.places.iter().zip(inputs) {
            if let (Some(place), Some(input)) = (place, input) {
                values[place] = Some(input);
            }
        }
        for step in &self.steps {
            let inputs: Vec<Option<Tensor>> =
                step.inputs.iter().map(|place| place.and_then(|place| values[place].clone())).collect();
            let call = Call { node: &step.node, backend: &self.backend, inputs: &inputs };
            let outputs = (step.run)(&call).map_err(|source| Error::Node {
                node: step.node.name.clone(),
                operator: step.node.operator.clone(),
                source: Box::new(source),
            })?;
            for (place, output) in step.outputs.iter().zip(outputs) {
                if let Some(place) = *place {
                    values[place] = Some(output);
                }
            }
            step.last.iter().for_each(|&place| values[place] = None);
        }
        let taken = |&place: &usize| {
            values[place].clone().ok_or_else(|| Error::invalid("an output was not computed"))
        };
        self.outputs.iter().map(taken).collect()
    }
}
