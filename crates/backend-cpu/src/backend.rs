//! The contract, method by method.

use backend_api::desc::{
    AffineDesc, AttentionDesc, BatchNormDesc, BinaryDesc, ClampDesc, CompareDesc, ConcatDesc,
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvTransposeDesc, CopyDesc, CumSumDesc,
    GatherDesc, GroupNormDesc, LayerNormDesc, MatmulDesc, Matrix, NormBackwardDesc, NormBackwardWeightDesc,
    PadDesc, PermuteDesc, PoolBackwardDesc, PoolDesc, RandomDesc, ReduceDesc, RepeatDesc, RmsNormDesc,
    RopeDesc, ScatterDesc, SliceDesc, SoftmaxBackwardDesc, SoftmaxDesc, TensorDesc, UnaryDesc, WhereDesc,
};
use backend_api::operand::{Access, Operand};
use backend_api::{
    BackendError, BackendFuture, BackendResult, BackendTranspose, BinaryOp, Capabilities, ComputeBackend,
    DType, DeviceInfo, GraphTable, MemoryStats, Operation, ReduceOp, UnaryOp,
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

/// `bytes` bytes of any alignment.
const fn raw(arg: &'static str, ptr: u64, bytes: usize, access: Access) -> Operand {
    Operand { arg, ptr, bytes, align: 1, access }
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

    fn gemm(
        &self,
        trans_a: BackendTranspose,
        trans_b: BackendTranspose,
        m: usize,
        n: usize,
        k: usize,
        alpha: f64,
        a_ptr: u64,
        lda: usize,
        b_ptr: u64,
        ldb: usize,
        beta: f64,
        c_ptr: u64,
        ldc: usize,
    ) -> BackendResult<()> {
        let [a, b, c] =
            [(a_ptr, lda), (b_ptr, ldb), (c_ptr, ldc)].map(|(ptr, ld)| Matrix::new(ptr, DType::F32, ld));
        let desc = MatmulDesc::new(m, n, k, a, b, c).with_transpose(trans_a, trans_b).with_scale(alpha, beta);
        ops::matmul::matmul(self.memory("gemm")?, "gemm", &desc)
    }

    fn batched_gemm(
        &self,
        trans_a: BackendTranspose,
        trans_b: BackendTranspose,
        m: usize,
        n: usize,
        k: usize,
        alpha: f64,
        a_ptr: u64,
        lda: usize,
        stride_a: usize,
        b_ptr: u64,
        ldb: usize,
        stride_b: usize,
        beta: f64,
        c_ptr: u64,
        ldc: usize,
        stride_c: usize,
        batch_count: usize,
    ) -> BackendResult<()> {
        let [a, b, c] = [(a_ptr, lda, stride_a), (b_ptr, ldb, stride_b), (c_ptr, ldc, stride_c)]
            .map(|(ptr, ld, stride)| Matrix::new(ptr, DType::F32, ld).with_batch_stride(stride));
        let desc = MatmulDesc::new(m, n, k, a, b, c)
            .with_transpose(trans_a, trans_b)
            .with_scale(alpha, beta)
            .with_batch(batch_count);
        ops::matmul::matmul(self.memory("batched_gemm")?, "batched_gemm", &desc)
    }

    fn conv2d_forward(
        &self,
        input_ptr: u64,
        input_shape: &[usize],
        filter_ptr: u64,
        filter_shape: &[usize],
        output_ptr: u64,
        output_shape: &[usize],
        stride: &[usize],
        padding: &[usize],
    ) -> BackendResult<()> {
        let op = "conv2d_forward";
        let memory = self.memory(op)?;
        let desc = ConvDesc::from_slices(
            op,
            input_ptr,
            input_shape,
            filter_ptr,
            filter_shape,
            output_ptr,
            output_shape,
            stride,
            padding,
        )?;
        ops::conv::conv2d(memory, op, &desc)
    }

    fn attention(
        &self,
        q_ptr: u64,
        k_ptr: u64,
        v_ptr: u64,
        o_ptr: u64,
        batch: usize,
        heads: usize,
        seq_q: usize,
        seq_kv: usize,
        head_dim: usize,
        scale: f64,
        causal: bool,
    ) -> BackendResult<()> {
        let shape = [batch, heads, seq_q, seq_kv, head_dim];
        let mut desc = AttentionDesc::new(DType::F32, [q_ptr, k_ptr, v_ptr, o_ptr], shape);
        desc.scale = scale;
        desc.causal = causal;
        ops::attention::attention(self.memory("attention")?, "attention", &desc)
    }

    fn reduce(
        &self,
        op: ReduceOp,
        input_ptr: u64,
        output_ptr: u64,
        shape: &[usize],
        axis: usize,
    ) -> BackendResult<()> {
        let (input, axes) = (TensorDesc::packed(input_ptr, DType::F32, shape), [axis]);
        let desc = ReduceDesc::new(op, input, &axes, output_ptr);
        ops::reduce::reduce(self.memory("reduce")?, "reduce", &desc)
    }

    fn unary(&self, op: UnaryOp, input_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        let shape = [n];
        let [input, output] = [input_ptr, output_ptr].map(|ptr| TensorDesc::packed(ptr, DType::F32, &shape));
        ops::elementwise::unary(self.memory("unary")?, "unary", &UnaryDesc::new(op, input, output))
    }

    fn binary(&self, op: BinaryOp, a_ptr: u64, b_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        let shape = [n];
        let [a, b, output] =
            [a_ptr, b_ptr, output_ptr].map(|ptr| TensorDesc::packed(ptr, DType::F32, &shape));
        ops::elementwise::binary(self.memory("binary")?, "binary", &BinaryDesc::new(op, a, b, output))
    }

    fn synchronize(&self) -> BackendResult<()> {
        self.memory("synchronize").map(|_| ())
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.memory("alloc")?.alloc(bytes)
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        self.memory("free")?.free(ptr)
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        let op = "copy_htod";
        let operands = [raw("dst", dst, src.len(), Access::Write)];
        self.memory(op)?.access(op, &operands, |_, dst| dst.copy_from_slice(src))
    }

    fn warm_up_async<'a>(&'a self, _operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        Box::pin(async { self.memory("warm_up_async").map(|_| ()) })
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        let op = "copy_dtoh";
        let operands = [raw("src", src, dst.len(), Access::Read)];
        let memory = self.memory(op)?;
        memory.access(op, &operands, |[src]: [Input<'_>; 1], _| {
            dst.copy_from_slice(src.elements());
        })
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        self.memory("view")?.view(ptr, byte_offset, byte_len)
    }

    fn copy_dtod(&self, dst: u64, src: u64, bytes: usize) -> BackendResult<()> {
        let op = "copy_dtod";
        let operands = [raw("dst", dst, bytes, Access::Write), raw("src", src, bytes, Access::Read)];
        let memory = self.memory(op)?;
        memory.access(op, &operands, |[_, src], dst| dst.copy_from_slice(src.elements()))
    }

    fn fill(&self, dst: u64, dtype: DType, n: usize, value: f64) -> BackendResult<()> {
        ops::copy::fill(self.memory("fill")?, "fill", dst, dtype, n, value)
    }

    fn matmul(&self, desc: &MatmulDesc) -> BackendResult<()> {
        ops::matmul::matmul(self.memory("matmul")?, "matmul", desc)
    }

    fn attention_ext(&self, desc: &AttentionDesc) -> BackendResult<()> {
        ops::attention::attention(self.memory("attention_ext")?, "attention_ext", desc)
    }

    fn unary_ext(&self, desc: &UnaryDesc<'_>) -> BackendResult<()> {
        ops::elementwise::unary(self.memory("unary_ext")?, "unary_ext", desc)
    }

    fn binary_ext(&self, desc: &BinaryDesc<'_>) -> BackendResult<()> {
        ops::elementwise::binary(self.memory("binary_ext")?, "binary_ext", desc)
    }

    fn compare(&self, desc: &CompareDesc<'_>) -> BackendResult<()> {
        ops::pointwise::compare(self.memory("compare")?, "compare", desc)
    }

    fn where_cond(&self, desc: &WhereDesc<'_>) -> BackendResult<()> {
        ops::pointwise::where_cond(self.memory("where_cond")?, "where_cond", desc)
    }

    fn clamp(&self, desc: &ClampDesc<'_>) -> BackendResult<()> {
        ops::pointwise::clamp(self.memory("clamp")?, "clamp", desc)
    }

    fn affine(&self, desc: &AffineDesc<'_>) -> BackendResult<()> {
        ops::pointwise::affine(self.memory("affine")?, "affine", desc)
    }

    fn copy(&self, desc: &CopyDesc<'_>) -> BackendResult<()> {
        ops::copy::copy(self.memory("copy")?, "copy", desc)
    }

    fn permute(&self, desc: &PermuteDesc<'_>) -> BackendResult<()> {
        ops::movement::permute(self.memory("permute")?, "permute", desc)
    }

    fn slice(&self, desc: &SliceDesc<'_>) -> BackendResult<()> {
        ops::movement::slice(self.memory("slice")?, "slice", desc)
    }

    fn concat(&self, desc: &ConcatDesc<'_>) -> BackendResult<()> {
        ops::movement::concat(self.memory("concat")?, "concat", desc)
    }

    fn pad(&self, desc: &PadDesc<'_>) -> BackendResult<()> {
        ops::movement::pad(self.memory("pad")?, "pad", desc)
    }

    fn repeat(&self, desc: &RepeatDesc<'_>) -> BackendResult<()> {
        ops::movement::repeat(self.memory("repeat")?, "repeat", desc)
    }

    fn reduce_ext(&self, desc: &ReduceDesc<'_>) -> BackendResult<()> {
        ops::reduce::reduce(self.memory("reduce_ext")?, "reduce_ext", desc)
    }

    fn softmax(&self, desc: &SoftmaxDesc) -> BackendResult<()> {
        ops::softmax::softmax(self.memory("softmax")?, "softmax", desc)
    }

    fn layer_norm(&self, desc: &LayerNormDesc) -> BackendResult<()> {
        ops::norm::layer_norm(self.memory("layer_norm")?, "layer_norm", desc)
    }

    fn rms_norm(&self, desc: &RmsNormDesc) -> BackendResult<()> {
        ops::norm::rms_norm(self.memory("rms_norm")?, "rms_norm", desc)
    }

    fn group_norm(&self, desc: &GroupNormDesc) -> BackendResult<()> {
        ops::norm::group_norm(self.memory("group_norm")?, "group_norm", desc)
    }

    fn batch_norm(&self, desc: &BatchNormDesc) -> BackendResult<()> {
        ops::norm::batch_norm(self.memory("batch_norm")?, "batch_norm", desc)
    }

    fn cumsum(&self, desc: &CumSumDesc) -> BackendResult<()> {
        ops::cumsum::cumsum(self.memory("cumsum")?, "cumsum", desc)
    }

    fn softmax_backward(&self, desc: &SoftmaxBackwardDesc) -> BackendResult<()> {
        ops::backward::softmax_backward(self.memory("softmax_backward")?, "softmax_backward", desc)
    }

    fn norm_backward(&self, desc: &NormBackwardDesc) -> BackendResult<()> {
        ops::backward::norm_backward(self.memory("norm_backward")?, "norm_backward", desc)
    }

    fn norm_backward_weight(&self, desc: &NormBackwardWeightDesc) -> BackendResult<()> {
        ops::backward::norm_backward_weight(
            self.memory("norm_backward_weight")?,
            "norm_backward_weight",
            desc,
        )
    }

    fn conv2d(&self, desc: &ConvDesc) -> BackendResult<()> {
        ops::conv::conv2d(self.memory("conv2d")?, "conv2d", desc)
    }

    fn conv_transpose2d(&self, desc: &ConvTransposeDesc) -> BackendResult<()> {
        ops::conv::conv_transpose2d(self.memory("conv_transpose2d")?, "conv_transpose2d", desc)
    }

    fn conv2d_backward_data(&self, desc: &ConvBackwardDataDesc) -> BackendResult<()> {
        ops::conv::backward_data(self.memory("conv2d_backward_data")?, "conv2d_backward_data", desc)
    }

    fn conv2d_backward_filter(&self, desc: &ConvBackwardFilterDesc) -> BackendResult<()> {
        ops::conv_filter::backward_filter(
            self.memory("conv2d_backward_filter")?,
            "conv2d_backward_filter",
            desc,
        )
    }

    fn pool2d(&self, desc: &PoolDesc) -> BackendResult<()> {
        ops::pool::pool2d(self.memory("pool2d")?, "pool2d", desc)
    }

    fn pool2d_backward(&self, desc: &PoolBackwardDesc) -> BackendResult<()> {
        ops::pool::pool2d_backward(self.memory("pool2d_backward")?, "pool2d_backward", desc)
    }

    fn rope(&self, desc: &RopeDesc) -> BackendResult<()> {
        ops::rope::rope(self.memory("rope")?, "rope", desc)
    }

    fn gather(&self, desc: &GatherDesc) -> BackendResult<()> {
        ops::gather::gather(self.memory("gather")?, "gather", desc)
    }

    fn scatter(&self, desc: &ScatterDesc) -> BackendResult<()> {
        ops::gather::scatter(self.memory("scatter")?, "scatter", desc)
    }

    fn random(&self, desc: &RandomDesc) -> BackendResult<()> {
        ops::random::random(self.memory("random")?, "random", desc)
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
}
