//! The table behind the handles of captured graphs.

use std::sync::Arc;

use crate::BackendResult;
use crate::handles::{HandleTable, Slice};

/// The captured graphs of one opened backend. Their handles are none of memory's, and memory's are none of
/// theirs.
#[derive(Debug)]
pub struct GraphTable<G>(HandleTable<G>);

impl<G> Default for GraphTable<G> {
    fn default() -> Self {
        Self(HandleTable::of_graphs())
    }
}

impl<G> GraphTable<G> {
    /// Gives a handle to `graph`.
    ///
    /// # Errors
    /// [`Limit`](crate::BackendError::Limit) when 2²⁴ − 2 graphs are live.
    pub fn insert(&mut self, graph: G) -> BackendResult<u64> {
        self.0.insert("capture", Slice { block: Arc::new(graph), offset: 0, len: 0 })
    }

    /// The graph that a handle names.
    ///
    /// # Errors
    /// [`InvalidHandle`](crate::BackendError::InvalidHandle).
    pub fn get(&self, op: &'static str, graph: u64) -> BackendResult<Arc<G>> {
        self.0.lookup(op, "graph", graph).map(|slice| Arc::clone(&slice.block))
    }

    /// Takes a handle back. The graph lives until its last replay has been recorded.
    ///
    /// # Errors
    /// [`InvalidHandle`](crate::BackendError::InvalidHandle).
    pub fn remove(&mut self, op: &'static str, graph: u64) -> BackendResult<Arc<G>> {
        self.0.remove(op, "graph", graph).map(|slice| slice.block)
    }

    /// The number of live graphs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no graph is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
