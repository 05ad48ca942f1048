//! Which handle of the second backend stands for which one of the first.

use std::collections::HashMap;
use std::sync::Arc;

use backend_api::support::Operand;
use backend_api::{BackendResult, Command, ComputeBackend};
use conformance::reference::Bytes;

use crate::graph::Graph;

/// A handle's counterpart in the second backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Twin {
    pub(crate) ptr: u64,
    /// Bytes behind the handle.
    pub(crate) len: usize,
}

/// What the two backends have in common.
#[derive(Debug, Default)]
pub(crate) struct Mirror {
    /// By handles of the first backend.
    pub(crate) twins: HashMap<u64, Twin>,
    /// By handles of the first backend's graphs.
    pub(crate) graphs: HashMap<u64, Arc<Graph>>,
    /// Handles that graphs hold.
    pub(crate) held: usize,
    /// Whether a call has failed halfway, after which the memory of the two may differ.
    pub(crate) is_out_of_step: bool,
}

impl Mirror {
    /// The handle of the second backend; 0, which is none, for one that isn't known.
    pub(crate) fn twin(&self, ptr: u64) -> u64 {
        self.twins.get(&ptr).map_or(0, |twin| twin.ptr)
    }

    /// Calls `then` with the command as the second backend gets it, with that backend's handles.
    pub(crate) fn with_twins<R>(&self, command: Command<'_>, then: impl FnOnce(Command<'_>) -> R) -> R {
        command.with_handles(&mut |ptr| self.twin(ptr), then)
    }

    /// How many bytes from each handle's start on the operands reach, of those that pass the checks of memory.
    pub(crate) fn extents<'a>(&self, operands: impl Iterator<Item = &'a Operand>) -> HashMap<u64, usize> {
        let mut extents = HashMap::new();
        for operand in operands.filter(|operand| operand.bytes > 0) {
            let end = operand.offset.saturating_add(operand.bytes);
            if self.twins.get(&operand.ptr).is_some_and(|twin| end <= twin.len) {
                let extent = extents.entry(operand.ptr).or_insert(0);
                *extent = end.max(*extent);
            }
        }
        extents
    }

    /// Reads from a backend, to whose handle `handle` maps each of the first's.
    pub(crate) fn read(
        backend: &dyn ComputeBackend,
        extents: &HashMap<u64, usize>,
        handle: impl Fn(u64) -> u64,
    ) -> BackendResult<Bytes> {
        let mut all = Bytes::default();
        for (&ptr, &extent) in extents {
            let mut bytes = vec![0; extent];
            backend.copy_dtoh(&mut bytes, handle(ptr))?;
            all.insert(ptr, bytes);
        }
        Ok(all)
    }
}
