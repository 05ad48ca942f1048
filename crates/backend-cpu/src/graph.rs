//! Graphs: checked calls, with the memory that they name.

use backend_api::support::Calls;
use backend_api::{BackendResult, ComputeBackend};

use crate::CpuBackend;
use crate::memory::Memory;

/// Calls that can be made any number of times.
#[derive(Debug)]
pub(crate) struct Graph {
    calls: Calls,
    /// On the memory that the calls name.
    backend: CpuBackend,
}

impl Graph {
    pub(crate) fn capture(
        memory: &Memory,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<Self> {
        let checker = CpuBackend::over(memory.for_checks());
        let calls = Calls::record(&checker, record)?;
        if calls.is_empty() {
            tracing::warn!(
                "a graph with nothing to run: only calls on the backend that is handed over are captured"
            );
        }
        Ok(Self { calls, backend: checker.map_memory(Memory::for_replays) })
    }

    /// Makes the calls while no other thread makes one.
    pub(crate) fn replay(&self, memory: &Memory) -> BackendResult<()> {
        let _turn = memory.exclusive_turn();
        self.calls.replay(&self.backend)
    }
}
