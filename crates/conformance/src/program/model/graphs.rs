//! Graphs: calls that are made again, on what their handles meant when they were captured.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use backend_api::support::Calls;
use backend_api::{BackendError, BackendResult, ComputeBackend};

use super::Model;
use super::memory::{Handles, fresh};

pub(super) type Graphs = HashMap<u64, Graph>;

/// Captured calls, and all handles of that moment.
#[derive(Debug)]
pub(super) struct Graph {
    calls: Arc<Calls>,
    handles: Handles,
}

impl Model {
    pub(super) fn graphs(&self) -> MutexGuard<'_, Graphs> {
        // A panic elsewhere in the suite says enough.
        self.graphs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is the handle of a live graph.
    #[must_use]
    pub fn is_graph(&self, graph: u64) -> bool {
        self.graphs().contains_key(&graph)
    }

    pub(super) fn capture_calls(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        // What the calls do to a copy is forgotten.
        let checker = Self { memory: Mutex::new(self.memory().clone()), ..Self::default() };
        let calls = Arc::new(Calls::record(&checker, record)?);
        let graph = Graph { calls, handles: self.memory().hold_all() };
        let handle = fresh();
        self.graphs().insert(handle, graph);
        Ok(handle)
    }

    pub(super) fn replay_calls(&self, graph: u64) -> BackendResult<()> {
        let (calls, handles) = match self.graphs().get(&graph) {
            Some(graph) => (Arc::clone(&graph.calls), graph.handles.clone()),
            None => return Err(BackendError::InvalidHandle { op: "replay", arg: "graph", ptr: graph }),
        };
        let live = self.memory().with_handles(handles);
        let result = calls.replay(self);
        self.memory().with_handles(live);
        result
    }

    pub(super) fn drop_graph(&self, graph: u64) -> BackendResult<()> {
        let invalid = BackendError::InvalidHandle { op: "free_graph", arg: "graph", ptr: graph };
        let graph = self.graphs().remove(&graph).ok_or(invalid)?;
        self.memory().release_all(&graph.handles);
        Ok(())
    }

    /// Whether a graph may use a buffer that was destroyed.
    pub(super) fn is_dead_graph(&self, graph: u64) -> bool {
        let memory = self.memory();
        let graphs = self.graphs();
        graphs.get(&graph).is_some_and(|graph| graph.handles.values().any(|&region| memory.has_died(region)))
    }
}
