//! The contract, each operation handed to the code for it.

use std::any::Any;

use backend_api::support::{Access, GraphTable, Operand};
use backend_api::{
    BackendError, BackendFuture, BackendResult, Capabilities, Command, ComputeBackend, DeviceInfo,
    MemoryStats, Operation,
};
use parking_lot::Mutex;

use crate::access::Input;
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
        let memory = self.memory(op)?;
        match command {
            Command::Matmul(desc) => ops::matmul::matmul(memory, op, desc),
            Command::QuantMatmul(desc) => ops::quant::quant_matmul(memory, op, desc),
            Command::ExpertMatmul(desc) => ops::experts::expert_matmul(memory, op, desc),
            Command::QuantGather(desc) => ops::quant::quant_gather(memory, op, desc),
            Command::Dequantize(desc) => ops::quant::dequantize(memory, op, desc),
            Command::QuantizeRows(desc) => ops::quantize_rows::quantize_rows(memory, op, desc),
            Command::Attention(desc) => ops::attention::attention(memory, op, desc),
            Command::Unary(desc) => ops::elementwise::unary(memory, op, desc),
            Command::Binary(desc) => ops::elementwise::binary(memory, op, desc),
            Command::Compare(desc) => ops::pointwise::compare(memory, op, desc),
            Command::Where(desc) => ops::pointwise::where_cond(memory, op, desc),
            Command::Clamp(desc) => ops::pointwise::clamp(memory, op, desc),
            Command::Affine(desc) => ops::pointwise::affine(memory, op, desc),
            Command::Copy(desc) => ops::copy::copy(memory, op, desc),
            Command::Permute(desc) => ops::movement::permute(memory, op, desc),
            Command::Slice(desc) => ops::movement::slice(memory, op, desc),
            Command::Concat(desc) => ops::movement::concat(memory, op, desc),
            Command::Pad(desc) => ops::movement::pad(memory, op, desc),
            Command::Repeat(desc) => ops::movement::repeat(memory, op, desc),
            Command::Reduce(desc) => ops::reduce::reduce(memory, op, desc),
            Command::Softmax(desc) => ops::softmax::softmax(memory, op, desc),
            Command::LayerNorm(desc) => ops::norm::layer_norm(memory, op, desc),
            Command::RmsNorm(desc) => ops::norm::rms_norm(memory, op, desc),
            Command::GroupNorm(desc) => ops::norm::group_norm(memory, op, desc),
            Command::BatchNorm(desc) => ops::norm::batch_norm(memory, op, desc),
            Command::CumSum(desc) => ops::cumsum::cumsum(memory, op, desc),
            Command::SoftmaxBackward(desc) => ops::backward::softmax_backward(memory, op, desc),
            Command::NormBackward(desc) => ops::backward::norm_backward(memory, op, desc),
            Command::NormBackwardWeight(desc) => ops::backward::norm_backward_weight(memory, op, desc),
            Command::Conv(desc) => ops::conv::conv2d(memory, op, desc),
            Command::ConvTranspose(desc) => ops::conv::conv_transpose2d(memory, op, desc),
            Command::ConvBackwardData(desc) => ops::conv::backward_data(memory, op, desc),
            Command::ConvBackwardFilter(desc) => ops::conv_filter::backward_filter(memory, op, desc),
            Command::Pool(desc) => ops::pool::pool2d(memory, op, desc),
            Command::PoolBackward(desc) => ops::pool::pool2d_backward(memory, op, desc),
            Command::TopK(desc) => ops::top_k::top_k(memory, op, desc),
            Command::Sample(desc) => ops::sample::sample(memory, op, desc),
            Command::Rope(desc) => ops::rope::rope(memory, op, desc),
            Command::RopeAppend(desc) => ops::rope_append::rope_append(memory, op, desc),
            Command::Gather(desc) => ops::gather::gather(memory, op, desc),
            Command::Scatter(desc) => ops::gather::scatter(memory, op, desc),
            Command::Random(desc) => ops::random::random(memory, op, desc),
            Command::Fill { dst, dtype, n, value } => ops::copy::fill(memory, op, dst, dtype, n, value),
            Command::CopyBytes { dst, src, bytes } => {
                let operands = [
                    Operand::bytes("dst", dst, bytes, Access::Write),
                    Operand::bytes("src", src, bytes, Access::Read),
                ];
                memory.access(op, &operands, |[_, src], dst| dst.copy_from_slice(src.elements()))
            }
            _ => Err(self.unsupported(op)),
        }
    }

    fn synchronize(&self) -> BackendResult<()> {
        self.memory("synchronize").map(|_| ())
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.memory("alloc")?.alloc(bytes)
    }

    /// New memory is zero already.
    fn alloc_zeroed(&self, bytes: usize) -> BackendResult<u64> {
        self.alloc(bytes)
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        self.memory("free")?.free(ptr)
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        let op = "copy_htod";
        let operands = [Operand::bytes("dst", dst, src.len(), Access::Write)];
        self.memory(op)?.access(op, &operands, |_, dst| dst.copy_from_slice(src))
    }

    fn warm_up_async<'a>(&'a self, _operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        Box::pin(async { self.memory("warm_up_async").map(|_| ()) })
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        let op = "copy_dtoh";
        let operands = [Operand::bytes("src", src, dst.len(), Access::Read)];
        let memory = self.memory(op)?;
        memory.access(op, &operands, |[src]: [Input<'_>; 1], _| {
            dst.copy_from_slice(src.elements());
        })
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
