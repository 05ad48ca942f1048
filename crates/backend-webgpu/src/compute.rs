//! The contract, each method handed to its launcher.

use backend_api::desc::{
    AffineDesc, AttentionDesc, BatchNormDesc, BinaryDesc, ClampDesc, CompareDesc, ConcatDesc,
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvTransposeDesc, CopyDesc, CumSumDesc,
    GatherDesc, GroupNormDesc, LayerNormDesc, MatmulDesc, Matrix, NormBackwardDesc, NormBackwardWeightDesc,
    PadDesc, PermuteDesc, PoolBackwardDesc, PoolDesc, RandomDesc, ReduceDesc, RepeatDesc, RmsNormDesc,
    RopeDesc, ScatterDesc, SliceDesc, SoftmaxBackwardDesc, SoftmaxDesc, TensorDesc, UnaryDesc, WhereDesc,
};
use backend_api::{
    BackendFuture, BackendResult, BackendTranspose, BinaryOp, Capabilities, ComputeBackend, DType,
    DeviceInfo, MemoryStats, Operation, ReduceOp, UnaryOp,
};

use crate::{WebGpuBackend, context, ops};

impl ComputeBackend for WebGpuBackend {
    fn name(&self) -> &str {
        "webgpu"
    }

    fn init(&mut self) -> BackendResult<()> {
        self.open_device()
    }

    fn is_initialized(&self) -> bool {
        self.is_open()
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
        let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
        let desc = MatmulDesc::new(m, n, k, matrix(a_ptr, lda), matrix(b_ptr, ldb), matrix(c_ptr, ldc))
            .with_transpose(trans_a, trans_b)
            .with_scale(alpha, beta);
        self.call("gemm", |ctx, op| ops::matmul(ctx, op, &desc))
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
        let matrix = |ptr, ld, stride| Matrix::new(ptr, DType::F32, ld).with_batch_stride(stride);
        let (a, b, c) =
            (matrix(a_ptr, lda, stride_a), matrix(b_ptr, ldb, stride_b), matrix(c_ptr, ldc, stride_c));
        let desc = MatmulDesc::new(m, n, k, a, b, c)
            .with_transpose(trans_a, trans_b)
            .with_scale(alpha, beta)
            .with_batch(batch_count);
        self.call("batched_gemm", |ctx, op| ops::matmul(ctx, op, &desc))
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
        self.call("conv2d_forward", |ctx, op| {
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
            ops::conv2d(ctx, op, &desc)
        })
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
        self.call("attention", |ctx, op| ops::attention(ctx, op, &desc))
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
        self.call("reduce", |ctx, op| ops::reduce(ctx, op, &desc))
    }

    fn unary(&self, op: UnaryOp, input_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        let (shape, vector) = ([n], TensorDesc::packed);
        let desc =
            UnaryDesc::new(op, vector(input_ptr, DType::F32, &shape), vector(output_ptr, DType::F32, &shape));
        self.call("unary", |ctx, op| ops::unary(ctx, op, &desc))
    }

    fn binary(&self, op: BinaryOp, a_ptr: u64, b_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        let shape = [n];
        let vector = |ptr| TensorDesc::packed(ptr, DType::F32, &shape);
        let desc = BinaryDesc::new(op, vector(a_ptr), vector(b_ptr), vector(output_ptr));
        self.call("binary", |ctx, op| ops::binary(ctx, op, &desc))
    }

    fn synchronize(&self) -> BackendResult<()> {
        self.context("synchronize")?.device().synchronize("synchronize")
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.context("alloc")?.device().alloc("alloc", bytes)
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        self.context("free")?.device().memory.free(ptr)
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        ops::copy_htod(&self.context("copy_htod")?.context, dst, src)
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        context::copy_dtoh(self.context("copy_dtoh")?.device(), dst, src)
    }

    fn copy_dtoh_async<'a>(&'a self, dst: &'a mut [u8], src: u64) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            context::copy_dtoh_async(self.context_async("copy_dtoh_async")?.device(), dst, src).await
        })
    }

    fn synchronize_async(&self) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            self.context_async("synchronize_async")?.device().synchronize_async("synchronize_async").await
        })
    }

    fn warm_up_async<'a>(&'a self, operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        Box::pin(self.warm_up(operations))
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        self.context("view")?.device().memory.view(ptr, byte_offset, byte_len)
    }

    fn copy_dtod(&self, dst: u64, src: u64, bytes: usize) -> BackendResult<()> {
        self.call("copy_dtod", |ctx, _| ops::copy_dtod(ctx, dst, src, bytes))
    }

    fn fill(&self, dst: u64, dtype: DType, n: usize, value: f64) -> BackendResult<()> {
        self.call("fill", |ctx, _| ops::fill(ctx, dst, dtype, n, value))
    }

    fn matmul(&self, desc: &MatmulDesc) -> BackendResult<()> {
        self.call("matmul", |ctx, op| ops::matmul(ctx, op, desc))
    }

    fn attention_ext(&self, desc: &AttentionDesc) -> BackendResult<()> {
        self.call("attention_ext", |ctx, op| ops::attention(ctx, op, desc))
    }

    fn unary_ext(&self, desc: &UnaryDesc<'_>) -> BackendResult<()> {
        self.call("unary_ext", |ctx, op| ops::unary(ctx, op, desc))
    }

    fn binary_ext(&self, desc: &BinaryDesc<'_>) -> BackendResult<()> {
        self.call("binary_ext", |ctx, op| ops::binary(ctx, op, desc))
    }

    fn compare(&self, desc: &CompareDesc<'_>) -> BackendResult<()> {
        self.call("compare", |ctx, op| ops::compare(ctx, op, desc))
    }

    fn where_cond(&self, desc: &WhereDesc<'_>) -> BackendResult<()> {
        self.call("where_cond", |ctx, op| ops::where_cond(ctx, op, desc))
    }

    fn clamp(&self, desc: &ClampDesc<'_>) -> BackendResult<()> {
        self.call("clamp", |ctx, op| ops::clamp(ctx, op, desc))
    }

    fn affine(&self, desc: &AffineDesc<'_>) -> BackendResult<()> {
        self.call("affine", |ctx, op| ops::affine(ctx, op, desc))
    }

    fn copy(&self, desc: &CopyDesc<'_>) -> BackendResult<()> {
        self.call("copy", |ctx, op| ops::copy(ctx, op, desc))
    }

    fn permute(&self, desc: &PermuteDesc<'_>) -> BackendResult<()> {
        self.call("permute", |ctx, op| ops::permute(ctx, op, desc))
    }

    fn slice(&self, desc: &SliceDesc<'_>) -> BackendResult<()> {
        self.call("slice", |ctx, op| ops::slice(ctx, op, desc))
    }

    fn concat(&self, desc: &ConcatDesc<'_>) -> BackendResult<()> {
        self.call("concat", |ctx, op| ops::concat(ctx, op, desc))
    }

    fn pad(&self, desc: &PadDesc<'_>) -> BackendResult<()> {
        self.call("pad", |ctx, op| ops::pad(ctx, op, desc))
    }

    fn repeat(&self, desc: &RepeatDesc<'_>) -> BackendResult<()> {
        self.call("repeat", |ctx, op| ops::repeat(ctx, op, desc))
    }

    fn reduce_ext(&self, desc: &ReduceDesc<'_>) -> BackendResult<()> {
        self.call("reduce_ext", |ctx, op| ops::reduce(ctx, op, desc))
    }

    fn softmax(&self, desc: &SoftmaxDesc) -> BackendResult<()> {
        self.call("softmax", |ctx, op| ops::softmax(ctx, op, desc))
    }

    fn layer_norm(&self, desc: &LayerNormDesc) -> BackendResult<()> {
        self.call("layer_norm", |ctx, op| ops::layer_norm(ctx, op, desc))
    }

    fn rms_norm(&self, desc: &RmsNormDesc) -> BackendResult<()> {
        self.call("rms_norm", |ctx, op| ops::rms_norm(ctx, op, desc))
    }

    fn group_norm(&self, desc: &GroupNormDesc) -> BackendResult<()> {
        self.call("group_norm", |ctx, op| ops::group_norm(ctx, op, desc))
    }

    fn batch_norm(&self, desc: &BatchNormDesc) -> BackendResult<()> {
        self.call("batch_norm", |ctx, op| ops::batch_norm(ctx, op, desc))
    }

    fn cumsum(&self, desc: &CumSumDesc) -> BackendResult<()> {
        self.call("cumsum", |ctx, op| ops::cumsum(ctx, op, desc))
    }

    fn softmax_backward(&self, desc: &SoftmaxBackwardDesc) -> BackendResult<()> {
        self.call("softmax_backward", |ctx, op| ops::softmax_backward(ctx, op, desc))
    }

    fn norm_backward(&self, desc: &NormBackwardDesc) -> BackendResult<()> {
        self.call("norm_backward", |ctx, op| ops::norm_backward(ctx, op, desc))
    }

    fn norm_backward_weight(&self, desc: &NormBackwardWeightDesc) -> BackendResult<()> {
        self.call("norm_backward_weight", |ctx, op| ops::norm_backward_weight(ctx, op, desc))
    }

    fn conv2d(&self, desc: &ConvDesc) -> BackendResult<()> {
        self.call("conv2d", |ctx, op| ops::conv2d(ctx, op, desc))
    }

    fn conv_transpose2d(&self, desc: &ConvTransposeDesc) -> BackendResult<()> {
        self.call("conv_transpose2d", |ctx, op| ops::conv_transpose2d(ctx, op, desc))
    }

    fn conv2d_backward_data(&self, desc: &ConvBackwardDataDesc) -> BackendResult<()> {
        self.call("conv2d_backward_data", |ctx, op| ops::conv2d_backward_data(ctx, op, desc))
    }

    fn conv2d_backward_filter(&self, desc: &ConvBackwardFilterDesc) -> BackendResult<()> {
        self.call("conv2d_backward_filter", |ctx, op| ops::conv2d_backward_filter(ctx, op, desc))
    }

    fn pool2d(&self, desc: &PoolDesc) -> BackendResult<()> {
        self.call("pool2d", |ctx, op| ops::pool2d(ctx, op, desc))
    }

    fn pool2d_backward(&self, desc: &PoolBackwardDesc) -> BackendResult<()> {
        self.call("pool2d_backward", |ctx, op| ops::pool2d_backward(ctx, op, desc))
    }

    fn rope(&self, desc: &RopeDesc) -> BackendResult<()> {
        self.call("rope", |ctx, op| ops::rope(ctx, op, desc))
    }

    fn gather(&self, desc: &GatherDesc) -> BackendResult<()> {
        self.call("gather", |ctx, op| ops::gather(ctx, op, desc))
    }

    fn scatter(&self, desc: &ScatterDesc) -> BackendResult<()> {
        self.call("scatter", |ctx, op| ops::scatter(ctx, op, desc))
    }

    fn random(&self, desc: &RandomDesc) -> BackendResult<()> {
        self.call("random", |ctx, op| ops::random(ctx, op, desc))
    }

    fn capture(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        self.capture_with(|backend| record(backend))
    }

    fn replay(&self, graph: u64) -> BackendResult<()> {
        self.replay_graph(graph)
    }

    fn free_graph(&self, graph: u64) -> BackendResult<()> {
        self.context("free_graph")?.device().free_graph("free_graph", graph)
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        let call = self.turn("capabilities")?;
        let gpu = &call.device().gpu;
        let features = gpu.device.features();
        let mut capabilities = Capabilities::host();
        capabilities.f16 = features.contains(wgpu::Features::SHADER_F16);
        capabilities.subgroup_size = features.contains(wgpu::Features::SUBGROUP).then(|| {
            let info = gpu.adapter.get_info();
            (info.subgroup_min_size, info.subgroup_max_size)
        });
        capabilities.cooperative_matrix = gpu.cooperative_matrices;
        capabilities.max_alloc_bytes = call.device().memory.pool().max_bytes();
        capabilities.timestamps = features.contains(wgpu::Features::TIMESTAMP_QUERY);
        capabilities.blocking = cfg!(not(target_family = "wasm"));
        Ok(capabilities)
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        Self::device_info(self)
    }

    fn memory_stats(&self) -> MemoryStats {
        self.opened().map(|opened| opened.device().stats()).unwrap_or_default()
    }

    fn trim(&self) -> BackendResult<usize> {
        self.context("trim")?.device().trim()
    }

    fn set_memory_budget(&self, bytes: Option<usize>) -> BackendResult<()> {
        self.context("set_memory_budget")?.device().memory.pool().set_budget(bytes);
        Ok(())
    }
}
