//! The methods that programs call.

use backend_api::desc::{
    AffineDesc, BinaryDesc, ClampDesc, CompareDesc, ConcatDesc, CopyDesc, CumSumDesc, GatherDesc, MatmulDesc,
    PadDesc, PermuteDesc, ReduceDesc, ScatterDesc, SliceDesc, TensorDesc, UnaryDesc, WhereDesc,
};
use backend_api::operand::{Access, Operand};
use backend_api::{
    BackendFuture, BackendResult, BackendTranspose, BinaryOp, Capabilities, ComputeBackend, DType,
    DeviceInfo, Operation, ReduceOp, UnaryOp,
};

use super::{Model, ops, rows};

const fn raw(arg: &'static str, ptr: u64, bytes: usize, access: Access) -> Operand {
    Operand { arg, ptr, bytes, align: 1, access }
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
        memory.check("copy_htod", &[raw("dst", dst, src.len(), Access::Write)])?;
        let data: Vec<(u8, u8)> = src.iter().map(|&byte| (byte, 0xff)).collect();
        memory.write(dst, 0, &data);
        Ok(())
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        let memory = self.memory();
        memory.check("copy_dtoh", &[raw("src", src, dst.len(), Access::Read)])?;
        let bytes = memory.bytes(src, dst.len());
        for (to, (byte, _)) in dst.iter_mut().zip(bytes) {
            *to = byte;
        }
        Ok(())
    }

    fn copy_dtod(&self, dst: u64, src: u64, bytes: usize) -> BackendResult<()> {
        let mut memory = self.memory();
        let operands = [raw("dst", dst, bytes, Access::Write), raw("src", src, bytes, Access::Read)];
        memory.check("copy_dtod", &operands)?;
        if bytes > 0 {
            let data = memory.bytes(src, bytes);
            memory.write(dst, 0, &data);
        }
        Ok(())
    }

    fn fill(&self, dst: u64, dtype: DType, n: usize, value: f64) -> BackendResult<()> {
        ops::fill(&mut self.memory(), dst, dtype, n, value)
    }

    fn unary_ext(&self, desc: &UnaryDesc<'_>) -> BackendResult<()> {
        ops::unary(&mut self.memory(), desc)
    }

    fn binary(&self, op: BinaryOp, a_ptr: u64, b_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        let shape = [n];
        let [a, b, output] =
            [a_ptr, b_ptr, output_ptr].map(|ptr| TensorDesc::packed(ptr, DType::F32, &shape));
        ops::binary(&mut self.memory(), &BinaryDesc::new(op, a, b, output))
    }

    fn binary_ext(&self, desc: &BinaryDesc<'_>) -> BackendResult<()> {
        ops::binary(&mut self.memory(), desc)
    }

    fn compare(&self, desc: &CompareDesc<'_>) -> BackendResult<()> {
        ops::compare(&mut self.memory(), desc)
    }

    fn where_cond(&self, desc: &WhereDesc<'_>) -> BackendResult<()> {
        ops::where_cond(&mut self.memory(), desc)
    }

    fn clamp(&self, desc: &ClampDesc<'_>) -> BackendResult<()> {
        ops::clamp(&mut self.memory(), desc)
    }

    fn affine(&self, desc: &AffineDesc<'_>) -> BackendResult<()> {
        ops::affine(&mut self.memory(), desc)
    }

    fn copy(&self, desc: &CopyDesc<'_>) -> BackendResult<()> {
        ops::copy(&mut self.memory(), desc)
    }

    fn permute(&self, desc: &PermuteDesc<'_>) -> BackendResult<()> {
        ops::permute(&mut self.memory(), desc)
    }

    fn slice(&self, desc: &SliceDesc<'_>) -> BackendResult<()> {
        ops::slice(&mut self.memory(), desc)
    }

    fn concat(&self, desc: &ConcatDesc<'_>) -> BackendResult<()> {
        ops::concat(&mut self.memory(), desc)
    }

    fn pad(&self, desc: &PadDesc<'_>) -> BackendResult<()> {
        ops::pad(&mut self.memory(), desc)
    }

    fn reduce_ext(&self, desc: &ReduceDesc<'_>) -> BackendResult<()> {
        rows::reduce(&mut self.memory(), desc)
    }

    fn cumsum(&self, desc: &CumSumDesc) -> BackendResult<()> {
        rows::cumsum(&mut self.memory(), desc)
    }

    fn matmul(&self, desc: &MatmulDesc) -> BackendResult<()> {
        rows::matmul(&mut self.memory(), desc)
    }

    fn gather(&self, desc: &GatherDesc) -> BackendResult<()> {
        rows::gather(&mut self.memory(), desc)
    }

    fn scatter(&self, desc: &ScatterDesc) -> BackendResult<()> {
        rows::scatter(&mut self.memory(), desc)
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

    fn trim(&self) -> BackendResult<usize> {
        Ok(0)
    }

    fn set_memory_budget(&self, _bytes: Option<usize>) -> BackendResult<()> {
        Ok(())
    }

    fn gemm(
        &self,
        _trans_a: BackendTranspose,
        _trans_b: BackendTranspose,
        _m: usize,
        _n: usize,
        _k: usize,
        _alpha: f64,
        _a_ptr: u64,
        _lda: usize,
        _b_ptr: u64,
        _ldb: usize,
        _beta: f64,
        _c_ptr: u64,
        _ldc: usize,
    ) -> BackendResult<()> {
        Err(self.unsupported("gemm"))
    }

    fn batched_gemm(
        &self,
        _trans_a: BackendTranspose,
        _trans_b: BackendTranspose,
        _m: usize,
        _n: usize,
        _k: usize,
        _alpha: f64,
        _a_ptr: u64,
        _lda: usize,
        _stride_a: usize,
        _b_ptr: u64,
        _ldb: usize,
        _stride_b: usize,
        _beta: f64,
        _c_ptr: u64,
        _ldc: usize,
        _stride_c: usize,
        _batch_count: usize,
    ) -> BackendResult<()> {
        Err(self.unsupported("batched_gemm"))
    }

    fn conv2d_forward(
        &self,
        _input_ptr: u64,
        _input_shape: &[usize],
        _filter_ptr: u64,
        _filter_shape: &[usize],
        _output_ptr: u64,
        _output_shape: &[usize],
        _stride: &[usize],
        _padding: &[usize],
    ) -> BackendResult<()> {
        Err(self.unsupported("conv2d_forward"))
    }

    fn attention(
        &self,
        _q_ptr: u64,
        _k_ptr: u64,
        _v_ptr: u64,
        _o_ptr: u64,
        _batch: usize,
        _heads: usize,
        _seq_q: usize,
        _seq_kv: usize,
        _head_dim: usize,
        _scale: f64,
        _causal: bool,
    ) -> BackendResult<()> {
        Err(self.unsupported("attention"))
    }

    fn reduce(
        &self,
        _op: ReduceOp,
        _input_ptr: u64,
        _output_ptr: u64,
        _shape: &[usize],
        _axis: usize,
    ) -> BackendResult<()> {
        Err(self.unsupported("reduce"))
    }

    fn unary(&self, _op: UnaryOp, _input_ptr: u64, _output_ptr: u64, _n: usize) -> BackendResult<()> {
        Err(self.unsupported("unary"))
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        Ok(Capabilities::host())
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        Err(self.unsupported("device_info"))
    }
}
