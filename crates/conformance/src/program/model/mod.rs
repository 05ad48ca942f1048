//! The contract on the host, in as few words as possible: every allocation is bytes, every operation a loop.

mod backend;
mod element;
mod graphs;
mod memory;
mod ops;
mod order;
mod quant;
mod rows;

use std::sync::{Mutex, MutexGuard, PoisonError};

use graphs::Graphs;
use memory::Memory;

pub(super) use memory::MAX_ALLOC;

/// A [`ComputeBackend`](backend_api::ComputeBackend) with the operations that programs use, which knows what
/// it doesn't know.
#[derive(Debug, Default)]
pub struct Model {
    memory: Mutex<Memory>,
    graphs: Mutex<Graphs>,
}

impl Model {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        // A panic elsewhere in the suite says enough.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first `len` bytes behind a handle, each with the bits that are known of it.
    #[must_use]
    pub fn bytes(&self, ptr: u64, len: usize) -> Vec<(u8, u8)> {
        self.memory().bytes(ptr, len)
    }

    /// The bytes behind a live handle.
    #[must_use]
    pub fn len(&self, ptr: u64) -> Option<usize> {
        self.memory().region(ptr).map(|region| region.len)
    }

    /// Memory of zeros that the caller made.
    pub(super) fn import(&self, bytes: usize) -> backend_api::BackendResult<u64> {
        self.memory().alloc(bytes, true)
    }

    /// No handle is live any more.
    pub(super) fn reset(&self) {
        *self.memory() = Memory::default();
        *self.graphs() = Graphs::default();
    }

    /// The work so far is done.
    pub(super) fn settle(&self) {
        self.memory().settle();
    }

    /// The work since the last wait may be lost.
    pub(super) fn forget_unsettled(&self) {
        self.memory().forget_unsettled();
    }

    /// The buffer behind the handle was destroyed.
    pub(super) fn kill(&self, ptr: u64) {
        self.memory().kill(ptr);
    }

    pub(super) fn is_dead(&self, ptr: u64) -> bool {
        self.memory().is_dead(ptr) || self.is_dead_graph(ptr)
    }
}
