//! The contract: operations go to `ops`, the rest to memory and graphs.

use std::any::Any;

use backend_api::support::{Access, GraphTable, Operand};
use backend_api::{
    BackendError, BackendFuture, BackendResult, Capabilities, Command, ComputeBackend, DeviceInfo,
    MemoryStats, Operation,
};
use parking_lot::Mutex;

use crate::access::{Call, Input};
use crate::graph::Graph;
use crate::memory::{MAX_ALLOC_BYTES, Memory};
use crate::{factory, ops};

/// The host CPU as a compute device.
///
/// Every call finishes before it returns. Calls from several threads run at the same time unless one writes
/// what another uses; a replay of a graph runs alone. Memory is zero when it is allocated, and given back to the system when its last handle
/// is freed.
#[derive(Debug, Default)]
pub struct CpuBackend {
    memory: Option<Memory>,
    graphs: Mutex<GraphTable<Graph>>,
}

impl CpuBackend {
    /// An initialised backend; [`default`](Self::default) gives one that still needs
    /// [`init`](ComputeBackend::init).
    #[must_use]
    pub fn new() -> Self {
        Self::over(Memory::new())
    }

    pub(crate) fn over(memory: Memory) -> Self {
        Self { memory: Some(memory), graphs: Mutex::default() }
    }

    pub(crate) fn map_memory(self, map: impl FnOnce(Memory) -> Memory) -> Self {
        Self { memory: self.memory.map(map), ..self }
    }

    fn memory(&self, op: &'static str) -> BackendResult<&Memory> {
        self.memory.as_ref().ok_or(BackendError::NotInitialized { op })
    }

    fn call(&self, op: &'static str) -> BackendResult<Call<'_>> {
        Ok(Call { memory: self.memory(op)?, op })
    }
}

impl ComputeBackend for CpuBackend {
    fn name(&self) -> &str {
        factory::NAME
    }

    fn init(&mut self) -> BackendResult<()> {
        self.memory.get_or_insert_with(Memory::new);
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        self.memory.is_some()
    }

    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        ops::execute(self.call(op)?, command).unwrap_or_else(|| Err(self.unsupported(op)))
    }

    fn synchronize(&self) -> BackendResult<()> {
        self.memory("synchronize").map(|_| ())
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.memory("alloc")?.alloc("alloc", bytes)
    }

    /// New memory is zero already.
    fn alloc_zeroed(&self, bytes: usize) -> BackendResult<u64> {
        self.memory("alloc_zeroed")?.alloc("alloc_zeroed", bytes)
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        self.memory("free")?.free(ptr)
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        let op = "copy_htod";
        let operands = [Operand::bytes("dst", dst, src.len(), Access::Write)];
        self.call(op)?.access(&operands, |_, dst| dst.copy_from_slice(src))
    }

    fn warm_up_async<'a>(&'a self, _operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        Box::pin(async { self.memory("warm_up_async").map(|_| ()) })
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        let op = "copy_dtoh";
        let operands = [Operand::bytes("src", src, dst.len(), Access::Read)];
        self.call(op)?.access(&operands, |[src]: [Input<'_>; 1], _| dst.copy_from_slice(src.elements()))
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        self.memory("view")?.view(ptr, byte_offset, byte_len)
    }

    fn capture(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        let graph = Graph::capture(self.memory("capture")?, record)?;
        self.graphs.lock().insert(graph)
    }

    fn replay(&self, graph: u64) -> BackendResult<()> {
        let (op, ptr) = ("replay", graph);
        let memory = self.memory(op)?;
        let graph = self.graphs.lock().get(op, ptr)?;
        graph.replay(memory)
    }

    fn free_graph(&self, graph: u64) -> BackendResult<()> {
        let op = "free_graph";
        self.memory(op)?;
        // Bound first, so that what it holds is dropped after the lock is released.
        let graph = self.graphs.lock().remove(op, graph)?;
        drop(graph);
        Ok(())
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        self.memory("capabilities")?;
        let mut capabilities = Capabilities::host();
        capabilities.max_alloc_bytes = MAX_ALLOC_BYTES;
        capabilities.max_binding_bytes = MAX_ALLOC_BYTES;
        Ok(capabilities)
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        self.memory("device_info")?;
        Ok(factory::device_info())
    }

    fn memory_stats(&self) -> MemoryStats {
        self.memory.as_ref().map(Memory::stats).unwrap_or_default()
    }

    fn trim(&self) -> BackendResult<usize> {
        self.memory("trim").map(|_| 0)
    }

    fn set_memory_budget(&self, bytes: Option<usize>) -> BackendResult<()> {
        self.memory("set_memory_budget")?.set_budget(bytes);
        Ok(())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}
