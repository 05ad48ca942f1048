//! One captured run: a graph of the backend, and what the host does beside it.

use std::any::Any;
use std::sync::Arc;

use backend_api::owned::Graph;
use backend_api::{BackendError, ComputeBackend};

use super::Key;
use crate::error::{Error, Result};
use crate::numbers::Numbers;
use crate::ops::Device;
use crate::plan::{Plan, Step};
use crate::tensor::Tensor;
use crate::workspace::{Arena, Workspace};

/// A captured run.
#[derive(Debug)]
pub(crate) struct Recording {
    /// Of which inputs it is.
    pub(crate) key: Key,
    graph: Graph,
    /// The places of inputs on the device, and the graph's own tensors for them.
    inputs: Vec<(usize, Tensor)>,
    /// What steps on the host read besides what changes, by place.
    fixed: Vec<Option<Tensor>>,
    /// Steps that are done on the host in every run.
    host_steps: Vec<usize>,
    /// What the graph reads of what the host computes.
    reads: Vec<Read>,
    outputs: Vec<Output>,
}

/// A tensor of the host's that the graph depends on.
#[derive(Debug)]
struct Read {
    place: usize,
    /// As it was captured; its memory is the graph's.
    captured: Tensor,
    /// Whether operations were chosen by its numbers.
    is_parameter: bool,
}

/// Where an output comes from.
#[derive(Debug)]
enum Output {
    /// A tensor that is the same in every run.
    Fixed(Tensor),
    /// The graph's memory.
    Graph(Tensor),
    /// A step on the host.
    Host(usize),
}

/// Captures a run.
pub(crate) fn record(plan: &Plan, key: Key, given: &[Option<Tensor>]) -> Result<Recording> {
    let backend = plan.backend();
    let arena = Arc::new(Arena::default());
    let mut recorder = Recorder::new(plan, Workspace::of_capture(backend, &arena), given)?;
    let mut outcome = Ok(());
    let captured = Graph::capture(backend, |operations| {
        outcome = recorder.steps(operations);
        // An error of ours ends the capture; which one it was, the outcome says.
        outcome.as_ref().map_err(|_| BackendError::Capturing { op: "capture" }).copied()
    });
    outcome?;
    let graph = captured?;
    Ok(recorder.finish(key, graph))
}

/// Compiles the kernels of a run, as far as the host needs no number of the device's to go on.
pub(crate) fn warm_up(plan: &Plan, given: &[Option<Tensor>]) {
    let backend = plan.backend();
    let dry_run = |operations: &dyn ComputeBackend| {
        let arena = Arc::new(Arena::default());
        // What fails here is left to the run, which fails with the reason.
        _ = Recorder::new(plan, Workspace::of_capture(backend, &arena), given)
            .and_then(|mut recorder| recorder.steps(operations));
        Ok(())
    };
    _ = pollster::block_on(backend.warm_up_async(&[&dry_run]));
}

/// A capture in progress.
struct Recorder<'a> {
    plan: &'a Plan,
    memory: Workspace<'a>,
    values: Vec<Option<Tensor>>,
    /// Whether a value is the host's and differs from run to run.
    varies: Vec<bool>,
    inputs: Vec<(usize, Tensor)>,
    fixed: Vec<Option<Tensor>>,
    host_steps: Vec<usize>,
    reads: Vec<Read>,
    outputs: Vec<Tensor>,
}

impl<'a> Recorder<'a> {
    fn new(plan: &'a Plan, memory: Workspace<'a>, given: &[Option<Tensor>]) -> Result<Self> {
        let mut values = plan.initial.clone();
        let mut varies = vec![false; values.len()];
        let mut inputs = Vec::new();
        for (i, (place, tensor)) in plan.places.iter().zip(given).enumerate() {
            let (Some(place), Some(tensor)) = (*place, tensor) else { continue };
            // Elements of their own, which the graph may keep and write.
            values[place] = Some(if tensor.is_on_host() {
                varies[place] = true;
                Tensor::host(tensor.kind, tensor.shape.clone(), tensor.numbers()?.clone())?
            } else {
                let own = Tensor::empty(memory, tensor.kind, tensor.shape.clone())?;
                inputs.push((i, own.clone()));
                own
            });
        }
        let fixed = vec![None; values.len()];
        let (host_steps, reads, outputs) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { plan, memory, values, varies, inputs, fixed, host_steps, reads, outputs })
    }

    fn steps(&mut self, operations: &dyn ComputeBackend) -> Result<()> {
        for (i, step) in self.plan.steps.iter().enumerate() {
            let varying: Vec<usize> =
                step.inputs.iter().flatten().copied().filter(|&place| self.varies[place]).collect();
            for tensor in varying.iter().filter_map(|&place| self.values[place].as_ref()) {
                tensor.take_was_read();
            }
            let views = self.views_of_host(step);
            let mut outputs = self.plan.call(step, &self.values, self.memory, operations)?;
            // Their numbers are those of this run, and a replay wouldn't compute them anew.
            if views.iter().any(Tensor::take_was_read) {
                return Err(Error::Uncapturable);
            }
            if !varying.is_empty() {
                match outputs.iter().filter(|output| output.is_on_host()).count() {
                    0 => self.read(&varying),
                    on_host if on_host == outputs.len() => {
                        self.repeat(i, step);
                        // Elements of their own: a step may give what it was given, and with other numbers something
                        // else, so that a replay uploads other numbers for each.
                        for output in &mut outputs {
                            let numbers = output.numbers()?.clone();
                            *output = Tensor::host(output.kind, output.shape.clone(), numbers)?;
                        }
                    }
                    _ => return Err(Error::Uncapturable),
                }
            }
            for (place, output) in step.outputs.iter().zip(outputs) {
                if let Some(place) = *place {
                    self.values[place] = Some(output);
                }
            }
            step.last.iter().for_each(|&place| self.values[place] = None);
        }
        self.outputs = self.plan.taken(&self.values, Device { memory: self.memory, backend: operations })?;
        Ok(())
    }

    /// Inputs of a step that are views of elements on the host, none of which was read yet.
    fn views_of_host(&self, step: &Step) -> Vec<Tensor> {
        let inputs = step.inputs.iter().flatten().filter_map(|&place| self.values[place].as_ref());
        let views: Vec<Tensor> = inputs.filter(|tensor| tensor.views_host()).cloned().collect();
        views.iter().for_each(|view| _ = view.take_was_read());
        views
    }

    /// Notes what a step of the graph has read of what varies.
    fn read(&mut self, varying: &[usize]) {
        for &place in varying {
            let Some(tensor) = &self.values[place] else { continue };
            let is_parameter = tensor.take_was_read();
            match self.reads.iter_mut().find(|read| read.place == place) {
                Some(read) => read.is_parameter |= is_parameter,
                None => self.reads.push(Read { place, captured: tensor.clone(), is_parameter }),
            }
        }
    }

    /// Notes a step that every run does on the host.
    fn repeat(&mut self, i: usize, step: &Step) {
        self.host_steps.push(i);
        for place in step.inputs.iter().flatten().copied().filter(|&place| !self.varies[place]) {
            let tensor = self.values[place].as_ref();
            self.fixed[place] =
                tensor.map(|tensor| if tensor.is_on_host() { tensor.clone() } else { tensor.shell() });
        }
        step.outputs.iter().flatten().for_each(|&place| self.varies[place] = true);
    }

    fn finish(self, key: Key, graph: Graph) -> Recording {
        let Self { plan, varies, inputs, fixed, host_steps, reads, outputs, .. } = self;
        let output = |(&place, tensor): (&usize, Tensor)| match () {
            () if varies[place] => Output::Host(place),
            () if tensor.is_leased() => Output::Graph(tensor),
            () => Output::Fixed(tensor),
        };
        let outputs = plan.outputs.iter().zip(outputs).map(output).collect();
        Recording { key, graph, inputs, fixed, host_steps, reads, outputs }
    }
}

impl Recording {
    /// Runs the graph on other inputs. Gives the values on the host; `None`, with nothing done, if their
    /// numbers ask for other operations.
    pub(super) fn replay(
        &self,
        plan: &Plan,
        given: &[Option<Tensor>],
    ) -> Result<Option<Vec<Option<Tensor>>>> {
        let backend = plan.backend();
        let memory = Workspace::new(backend);
        let mut values = self.fixed.clone();
        for (place, tensor) in plan.places.iter().zip(given) {
            if let (Some(place), Some(tensor)) =
                (*place, tensor.as_ref().filter(|tensor| tensor.is_on_host()))
            {
                values[place] = Some(tensor.clone());
            }
        }
        for step in self.host_steps.iter().filter_map(|&i| plan.steps.get(i)) {
            let outputs = plan.call(step, &values, memory, &**backend)?;
            for (place, output) in step.outputs.iter().zip(outputs) {
                if let Some(place) = *place {
                    values[place] = Some(output);
                }
            }
        }
        let mut uploads: Vec<(&Tensor, &Numbers)> = Vec::new();
        for Read { place, captured, is_parameter } in &self.reads {
            let Some(now) = values[*place].as_ref().filter(|now| now.shape == captured.shape) else {
                return Ok(None);
            };
            let numbers = now.numbers()?;
            let is_same = captured.numbers()?.has_bits_of(numbers);
            if *is_parameter && !is_same {
                return Ok(None);
            }
            if captured.is_on_device() {
                uploads.push((captured, numbers));
            }
        }
        for (tensor, numbers) in uploads {
            tensor.upload_again(numbers)?;
        }
        for (i, own) in &self.inputs {
            let (Some(Some(tensor)), Some(to)) = (given.get(*i), own.buffer()) else { continue };
            if tensor.count() > 0 {
                backend.copy_dtod(to.ptr(), tensor.ptr(memory)?, own.device_bytes())?;
            }
        }
        self.graph.replay()?;
        Ok(Some(values))
    }

    /// The outputs, of which those in the graph's memory keep `holder`.
    pub(super) fn outputs(
        &self,
        plan: &Plan,
        values: &[Option<Tensor>],
        holder: &Arc<dyn Any + Send + Sync>,
    ) -> Result<Vec<Tensor>> {
        let backend = plan.backend();
        let device = Device { memory: Workspace::new(backend), backend: &**backend };
        let output = |output: &Output| match output {
            Output::Fixed(tensor) => Ok(tensor.clone()),
            Output::Graph(tensor) => Ok(tensor.lent(holder)),
            Output::Host(place) => Plan::output(values, *place, device),
        };
        self.outputs.iter().map(output).collect()
    }
}
