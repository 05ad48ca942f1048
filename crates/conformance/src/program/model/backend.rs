//! The methods that programs call.

use backend_api::support::{Access, Operand};
use backend_api::{
    BackendFuture, BackendResult, Capabilities, Command, ComputeBackend, DeviceInfo, Operation,
};

use super::{Model, ops, order, quant, rows};

impl Model {
    fn copy_bytes(&self, dst: u64, src: u64, bytes: usize) -> BackendResult<()> {
        let mut memory = self.memory();
        let operands = [
            Operand::bytes("dst", dst, bytes, Access::Write),
            Operand::bytes("src", src, bytes, Access::Read),
        ];
        memory.check("copy_dtod", &operands)?;
        if bytes > 0 {
            let data = memory.bytes(src, bytes);
            memory.write(dst, 0, &data);
        }
        Ok(())
    }
}

impl ComputeBackend for Model {
    fn name(&self) -> &str {
        "model"
    }

    fn init(&mut self) -> BackendResult<()> {
        Ok(())
    }

    fn is_initialized(&self) -> bool {
        true
    }

    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        match command {
            Command::Matmul(desc) => rows::matmul(&mut self.memory(), desc),
            Command::Unary(desc) => ops::unary(&mut self.memory(), desc),
            Command::Binary(desc) => ops::binary(&mut self.memory(), desc),
            Command::Compare(desc) => ops::compare(&mut self.memory(), desc),
            Command::Where(desc) => ops::where_cond(&mut self.memory(), desc),
            Command::Clamp(desc) => ops::clamp(&mut self.memory(), desc),
            Command::Affine(desc) => ops::affine(&mut self.memory(), desc),
            Command::Copy(desc) => ops::copy(&mut self.memory(), desc),
            Command::Permute(desc) => ops::permute(&mut self.memory(), desc),
            Command::Slice(desc) => ops::slice(&mut self.memory(), desc),
            Command::Concat(desc) => ops::concat(&mut self.memory(), desc),
            Command::Pad(desc) => ops::pad(&mut self.memory(), desc),
            Command::Reduce(desc) => rows::reduce(&mut self.memory(), desc),
            Command::CumSum(desc) => rows::cumsum(&mut self.memory(), desc),
            Command::Gather(desc) => rows::gather(&mut self.memory(), desc),
            Command::Scatter(desc) => rows::scatter(&mut self.memory(), desc),
            Command::TopK(desc) => order::top_k(&mut self.memory(), desc),
            Command::Sample(desc) => order::sample(&mut self.memory(), desc),
            Command::QuantMatmul(desc) => quant::matmul(&mut self.memory(), desc),
            Command::QuantGather(desc) => quant::gather(&mut self.memory(), desc),
            Command::Dequantize(desc) => quant::dequantize(&mut self.memory(), desc),
            Command::Fill { dst, dtype, n, value } => ops::fill(&mut self.memory(), dst, dtype, n, value),
            Command::CopyBytes { dst, src, bytes } => self.copy_bytes(dst, src, bytes),
            _ => Err(self.unsupported(op)),
        }
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.memory().alloc(bytes, false)
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        self.memory().free(ptr)
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        self.memory().view(ptr, byte_offset, byte_len)
    }

    fn synchronize(&self) -> BackendResult<()> {
        Ok(())
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        let mut memory = self.memory();
        memory.check("copy_htod", &[Operand::bytes("dst", dst, src.len(), Access::Write)])?;
        let data: Vec<(u8, u8)> = src.iter().map(|&byte| (byte, 0xff)).collect();
        memory.write(dst, 0, &data);
        Ok(())
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        let memory = self.memory();
        memory.check("copy_dtoh", &[Operand::bytes("src", src, dst.len(), Access::Read)])?;
        let bytes = memory.bytes(src, dst.len());
        for (to, (byte, _)) in dst.iter_mut().zip(bytes) {
            *to = byte;
        }
        Ok(())
    }

    fn warm_up_async<'a>(&'a self, operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            let before = self.memory().clone();
            let result = operations.iter().try_for_each(|operation| operation(self));
            *self.memory() = before;
            result
        })
    }

    fn capture(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        self.capture_calls(record)
    }

    fn replay(&self, graph: u64) -> BackendResult<()> {
        self.replay_calls(graph)
    }

    fn free_graph(&self, graph: u64) -> BackendResult<()> {
        self.drop_graph(graph)
    }

    fn set_memory_budget(&self, _bytes: Option<usize>) -> BackendResult<()> {
        Ok(())
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        Err(self.unsupported("device_info"))
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        Ok(Capabilities::host())
    }
}
