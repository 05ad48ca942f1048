//! A compiled subgraph.

use std::collections::HashMap;
use std::sync::{Arc, Once};

use backend_api::{ComputeBackend, MathMode};

use crate::capture::{self, Captures, Next};
use crate::error::{Error, Result};
use crate::fuse::{fold, fuse, merge, pack, unpack};
use crate::model::{Attribute, Graph, Name, Node};
use crate::ops::{self, Call, Device, Run};
use crate::profile::{Listeners, Profilers};
use crate::tensor::Tensor;
use crate::workspace::Workspace;

/// Nodes in order, and where each finds its inputs. Runs of several threads share it.
#[derive(Debug)]
pub(crate) struct Plan {
    backend: Arc<dyn ComputeBackend>,
    pub(crate) steps: Vec<Step>,
    /// The values before the first step: constants are there.
    pub(crate) initial: Vec<Option<Tensor>>,
    inputs: Vec<Name>,
    /// The place of each input.
    pub(crate) places: Vec<Option<usize>>,
    pub(crate) outputs: Vec<usize>,
    pub(crate) captures: Arc<Captures>,
    /// Who hears of the steps of runs.
    pub(crate) profilers: Arc<Profilers>,
    /// The kernels of the first run, compiled side by side before it.
    warmed_up: Once,
}

/// A node and the places of its values.
#[derive(Debug)]
pub(crate) struct Step {
    node: Node,
    run: Run,
    takes_views: bool,
    pub(crate) inputs: Vec<Option<usize>>,
    pub(crate) outputs: Vec<Option<usize>>,
    /// Values that nobody reads afterwards, whose memory is given back.
    pub(crate) last: Vec<usize>,
}

impl Plan {
    /// Compiles a graph for a backend.
    pub(crate) fn new(mut graph: Graph, backend: &Arc<dyn ComputeBackend>) -> Result<Self> {
        graph.prune();
        pack(&mut graph, backend)?;
        unpack(&mut graph)?;
        fold(&mut graph, backend)?;
        fuse(&mut graph);
        merge(&mut graph, backend)?;
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
                takes_views: row.takes_views,
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
            captures: Arc::default(),
            profilers: Arc::default(),
            warmed_up: Once::new(),
        })
    }

    /// Lets matrix products of f32 be made of products of f16 parts.
    pub(crate) fn emulate_f32(&mut self) {
        for step in &mut self.steps {
            if ops::takes_math(&step.node) {
                let math = Attribute::Text(MathMode::EmulatedF32.name().to_owned());
                step.node.attributes.insert("math".to_owned(), math);
            }
        }
    }

    /// What computes it.
    pub(crate) const fn backend(&self) -> &Arc<dyn ComputeBackend> {
        &self.backend
    }

    /// The names of the values that a run is given, in order.
    pub(crate) fn inputs(&self) -> &[Name] {
        &self.inputs
    }

    /// The operators of the steps, in order.
    pub(crate) fn operators(&self) -> String {
        let names: Vec<&str> = self.steps.iter().map(|step| step.node.operator.as_str()).collect();
        names.join(" ")
    }

    /// Computes the outputs, in order, of inputs in order: by a graph if the shapes repeat and nobody profiles.
    pub(crate) fn run(&self, inputs: Vec<Option<Tensor>>) -> Result<Vec<Tensor>> {
        // After a panic in it, which that run reports, the next run compiles what is left.
        self.warmed_up.call_once_force(|_| capture::warm_up(self, &inputs));
        if let Some(listeners) = self.profilers.listeners() {
            // What was called before isn't a step's.
            self.backend.synchronize()?;
            return self.run_eagerly(inputs, Some(&listeners));
        }
        let key = capture::key(&inputs);
        let loan = match self.captures.next(&key) {
            Next::Replay(loan) => Some(loan),
            Next::Eager => None,
            Next::Capture => match capture::record(self, key.clone(), &inputs) {
                Ok(recording) => Some(self.captures.lend_new(recording)),
                // What is wrong with the inputs or the device, the run by operations will say.
                Err(error) => {
                    self.captures.refuse(&key, &error);
                    None
                }
            },
        };
        if let Some(outputs) = loan.map(|loan| loan.replay(self, &inputs)).transpose()?.flatten() {
            return Ok(outputs);
        }
        self.run_eagerly(inputs, None)
    }

    fn run_eagerly(&self, inputs: Vec<Option<Tensor>>, listeners: Option<&Listeners>) -> Result<Vec<Tensor>> {
        let mut values = self.initial.clone();
        for (&place, input) in self.places.iter().zip(inputs) {
            if let (Some(place), Some(input)) = (place, input) {
                values[place] = Some(input);
            }
        }
        for step in &self.steps {
            let compute = || self.call(step, &values, Workspace::new(&self.backend), &*self.backend);
            let outputs = match listeners {
                Some(listeners) => listeners.step(&step.node, &*self.backend, compute)?,
                None => compute()?,
            };
            for (place, output) in step.outputs.iter().zip(outputs) {
                if let Some(place) = *place {
                    values[place] = Some(output);
                }
            }
            step.last.iter().for_each(|&place| values[place] = None);
        }
        self.taken(&values, Device { memory: Workspace::new(&self.backend), backend: &*self.backend })
    }

    /// The packed outputs.
    pub(crate) fn taken(&self, values: &[Option<Tensor>], device: Device<'_>) -> Result<Vec<Tensor>> {
        self.outputs.iter().map(|&place| Self::output(values, place, device)).collect()
    }

    /// One of the outputs, packed.
    pub(crate) fn output(values: &[Option<Tensor>], place: usize, device: Device<'_>) -> Result<Tensor> {
        let output = values[place].as_ref();
        device.packed(output.ok_or_else(|| Error::invalid("an output was not computed"))?)
    }

    /// The outputs of a step.
    pub(crate) fn call(
        &self,
        step: &Step,
        values: &[Option<Tensor>],
        memory: Workspace<'_>,
        backend: &dyn ComputeBackend,
    ) -> Result<Vec<Tensor>> {
        let device = Device { memory, backend };
        let value = |place: &Option<usize>| {
            let tensor = place.and_then(|place| values[place].as_ref());
            let packed = |tensor: &Tensor| {
                if step.takes_views { Ok(tensor.clone()) } else { device.packed(tensor) }
            };
            tensor.map(packed).transpose()
        };
        let inputs: Result<Vec<Option<Tensor>>> = step.inputs.iter().map(value).collect();
        let run = |inputs: Vec<Option<Tensor>>| {
            (step.run)(&Call { node: &step.node, memory, backend, inputs: &inputs })
        };
        inputs
            .and_then(run)
            .map_err(|source| Error::Node { node: step.node.label(), source: Box::new(source) })
    }
}
