//! Runs captured as graphs of the backend, to be replayed while the shapes of the inputs repeat.
//!
//! A captured run consists of three kinds of steps. What depends on nothing but the inputs' shapes is done
//! once. What is computed on the host from inputs on the host (masks, indices, lengths) is done in every run.
//! Everything else is in the graph. Where the graph reads memory that the host has computed, it is uploaded
//! again; where a step has read numbers on the host to choose its operations, a replay needs the same
//! numbers.

mod recording;

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::plan::Plan;
use crate::tensor::Tensor;
use recording::Recording;
pub(crate) use recording::{record, warm_up};

/// Shapes for which graphs are kept.
const KEYS: usize = 4;

/// Graphs of one key: more than one only while outputs of the first are in use.
const GRAPHS: usize = 2;

/// Replays in a row that other numbers than the captured ones have prevented, after which no more is tried.
const MISSES: usize = 3;

/// What graphs depend on: element type, shape and side of each input.
pub(crate) type Key = Vec<Option<(Kind, Vec<usize>, bool)>>;

/// The key of a run.
pub(crate) fn key(inputs: &[Option<Tensor>]) -> Key {
    let of = |tensor: &Tensor| (tensor.kind, tensor.shape.clone(), tensor.is_on_host());
    inputs.iter().map(|input| input.as_ref().map(of)).collect()
}

/// The shapes of a key, such as `[32, 128], [32, 128]`.
fn shapes_of(key: &Key) -> String {
    let shapes: Vec<String> = key.iter().flatten().map(|(_, shape, _)| format!("{shape:?}")).collect();
    if shapes.is_empty() { "no inputs".to_owned() } else { shapes.join(", ") }
}

/// The graphs of a plan.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    state: Mutex<State>,
    /// What the log is to say of captures.
    messages: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct State {
    /// The key of the run before, if that was no replay.
    last: Option<Key>,
    /// The most recently used one last.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    idle: Vec<Recording>,
    graphs: usize,
    misses: usize,
}

/// How a run is done.
#[derive(Debug)]
pub(crate) enum Next {
    /// By a graph.
    Replay(Loan),
    /// By a graph that is to be captured.
    Capture,
    /// Operation by operation.
    Eager,
}

impl Captures {
    /// How to do a run of this key: a run whose key is that of the one before is captured.
    pub(crate) fn next(self: &Arc<Self>, key: &Key) -> Next {
        let mut state = self.state.lock();
        let Some(place) = state.entries.iter().position(|entry| entry.key == *key) else {
            if state.last.as_ref() != Some(key) {
                state.last = Some(key.clone());
                return Next::Eager;
            }
            let evicted = (state.entries.len() >= KEYS).then(|| state.entries.remove(0));
            state.entries.push(Entry { key: key.clone(), idle: Vec::new(), graphs: 1, misses: 0 });
            drop(state);
            drop(evicted);
            return Next::Capture;
        };
        let mut entry = state.entries.remove(place);
        let next = match entry.idle.pop() {
            _ if entry.misses >= MISSES => Next::Eager,
            Some(recording) => Next::Replay(self.lend(recording)),
            None if entry.graphs < GRAPHS => {
                entry.graphs += 1;
                Next::Capture
            }
            None => Next::Eager,
        };
        state.entries.push(entry);
        next
    }

    /// A new graph on loan.
    pub(crate) fn lend_new(self: &Arc<Self>, recording: Recording) -> Loan {
        self.messages.lock().push(format!("captured: runs of {} are replayed", shapes_of(&recording.key)));
        self.lend(recording)
    }

    /// What the log is to say of captures since the last call.
    pub(crate) fn messages(&self) -> Vec<String> {
        std::mem::take(&mut self.messages.lock())
    }

    /// A graph on loan: the drop of the loan gives it back.
    fn lend(self: &Arc<Self>, recording: Recording) -> Loan {
        Loan { recording: Some(recording), captures: Arc::downgrade(self) }
    }

    /// Captures no more runs of this key.
    pub(crate) fn refuse(&self, key: &Key, error: &Error) {
        self.messages.lock().push(format!("runs of {} aren't captured: {error}", shapes_of(key)));
        self.with(key, |entry| entry.misses = MISSES);
    }

    /// Counts a replay, or one that other numbers than the captured ones have prevented.
    fn count(&self, key: &Key, is_hit: bool) {
        let mut misses = 0;
        self.with(key, |entry| {
            entry.misses = if is_hit { 0 } else { entry.misses + 1 };
            misses = entry.misses;
        });
        if misses == MISSES {
            let why = "operations depend on numbers of inputs, which change";
            self.messages.lock().push(format!("runs of {} are replayed no more: {why}", shapes_of(key)));
        }
    }

    fn with(&self, key: &Key, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.state.lock().entries.iter_mut().find(|entry| entry.key == *key) {
            change(entry);
        }
    }

    /// Keeps a graph for later runs, if its key still has a place.
    fn give_back(&self, recording: Recording) {
        let mut recording = Some(recording);
        let mut state = self.state.lock();
        let is_its = |entry: &&mut Entry| recording.as_ref().is_some_and(|graph| graph.key == entry.key);
        if let Some(entry) = state.entries.iter_mut().find(is_its).filter(|entry| entry.misses < MISSES) {
            entry.idle.extend(recording.take());
        }
        drop(state);
    }
}

/// A graph that one run has for itself.
#[derive(Debug)]
pub(crate) struct Loan {
    recording: Option<Recording>,
    captures: Weak<Captures>,
}

impl Loan {
    /// The outputs of `inputs`; `None` if their numbers ask for other operations than those of the graph.
    /// What lies in the graph's memory keeps the loan.
    pub(crate) fn replay(self, plan: &Plan, inputs: &[Option<Tensor>]) -> Result<Option<Vec<Tensor>>> {
        let Some(recording) = &self.recording else { return Ok(None) };
        let values = recording.replay(plan, inputs)?;
        if let Some(captures) = self.captures.upgrade() {
            let is_hit = values.is_some();
            captures.count(&recording.key, is_hit);
        }
        let Some(values) = values else { return Ok(None) };
        let holder: Arc<dyn std::any::Any + Send + Sync> = Arc::new(self);
        let loan = holder.downcast_ref::<Self>().and_then(|loan| loan.recording.as_ref());
        loan.map(|recording| recording.outputs(plan, &values, &holder)).transpose()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let (Some(recording), Some(captures)) = (self.recording.take(), self.captures.upgrade()) {
            captures.give_back(recording);
        }
    }
}

#[cfg(test)]
mod tests;
