//! Graphs: captured commands behind handles.

use backend_api::{BackendError, BackendResult, Diagnostic};

use super::Context;
use crate::device::guarded;
use crate::recorder::{Command, Graph, Waits};

impl Context {
    /// Makes a graph of commands.
    ///
    /// # Errors
    /// [`OutOfMemory`](BackendError::OutOfMemory), [`Limit`](BackendError::Limit);
    /// [`Driver`](BackendError::Driver) where the caller has destroyed a buffer that the commands use.
    pub(crate) fn add_graph(&self, op: &'static str, commands: &[Command]) -> BackendResult<u64> {
        let (device, layout) = (&self.gpu.device, self.pipelines.params_layout());
        let graph = guarded(device, || Graph::new(device, layout, commands));
        let graph = graph.map_err(|error| match error {
            wgpu::Error::OutOfMemory { .. } => {
                BackendError::OutOfMemory { requested: 0, in_use: self.memory.stats().in_use }
            }
            other => BackendError::Driver { op, source: Diagnostic::new(other.to_string()) },
        });
        let graph = graph.map_err(|error| self.explain(error))?;
        self.graphs.lock().insert(graph)
    }

    /// Records the commands of a graph; `is_due` as in [`Recorder::replay`](crate::recorder::Recorder::replay).
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle), [`Timeout`](BackendError::Timeout),
    /// [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn replay(
        &self,
        op: &'static str,
        graph: u64,
        waits: &Waits,
        is_due: &mut dyn FnMut(f64) -> bool,
    ) -> BackendResult<()> {
        let graph = self.graphs.lock().get(op, graph)?;
        let (first, whole) = (graph.first_batch(), graph.whole());
        if whole.is_none() {
            return Ok(());
        }
        self.record_with(op, [first, whole], waits, |recorder| recorder.replay(&graph, is_due))
    }

    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle).
    pub(crate) fn require_graph(&self, op: &'static str, graph: u64) -> BackendResult<()> {
        self.graphs.lock().get(op, graph).map(drop)
    }

    /// Launches of a replay.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle).
    #[cfg(any(test, feature = "test-hooks"))]
    pub(crate) fn launches(&self, op: &'static str, graph: u64) -> BackendResult<usize> {
        self.graphs.lock().get(op, graph).map(|graph| graph.launches())
    }

    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle).
    pub(crate) fn free_graph(&self, op: &'static str, graph: u64) -> BackendResult<()> {
        // Bound first, so that what it holds is dropped after the lock is released.
        let graph = self.graphs.lock().remove(op, graph)?;
        drop(graph);
        Ok(())
    }
}
