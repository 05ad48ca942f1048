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

use crate::{WebGpuBackend, ops, transfer};

impl ComputeBackend for WebGpuBackend {
    fn name(&self) -> &str {
        "webgpu"
    }

    fn init(&mut self) -> BackendResult<()> {
        self.open()
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
        ops::matmul(&*self.context("gemm")?, "gemm", &desc)
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
        ops::matmul(&*self.context("batched_gemm")?, "batched_gemm", &desc)
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
        let context = self.context(op)?;
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
        ops::conv2d(&context, op, &desc)
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
        ops::attention(&*self.context("attention")?, "attention", &desc)
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
        ops::reduce(&*self.context("reduce")?, "reduce", &desc)
    }

    fn unary(&self, op: UnaryOp, input_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        let (shape, vector) = ([n], TensorDesc::packed);
        let desc =
            UnaryDesc::new(op, vector(input_ptr, DType::F32, &shape), vector(output_ptr, DType::F32, &shape));
        ops::unary(&*self.context("unary")?, "unary", &desc)
    }

    fn binary(&self, op: BinaryOp, a_ptr: u64, b_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        let shape = [n];
        let vector = |ptr| TensorDesc::packed(ptr, DType::F32, &shape);
        let desc = BinaryDesc::new(op, vector(a_ptr), vector(b_ptr), vector(output_ptr));
        ops::binary(&*self.context("binary")?, "binary", &desc)
    }

    fn synchronize(&self) -> BackendResult<()> {
        self.context("synchronize")?.synchronize("synchronize")
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.context("alloc")?.memory.alloc(bytes)
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        self.context("free")?.memory.free(ptr)
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        transfer::copy_htod(&*self.context("copy_htod")?, dst, src)
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        transfer::copy_dtoh(&*self.context("copy_dtoh")?, dst, src)
    }

    fn copy_dtoh_async<'a>(&'a self, dst: &'a mut [u8], src: u64) -> BackendFuture<'a, ()> {
        Box::pin(
            async move { transfer::copy_dtoh_async(self.context_async("copy_dtoh_async")?, dst, src).await },
        )
    }

    fn synchronize_async(&self) -> BackendFuture<'_, ()> {
        Box::pin(async move {
            self.context_async("synchronize_async")?.synchronize_async("synchronize_async").await
        })
    }

    fn warm_up_async<'a>(&'a self, operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        Box::pin(self.warm_up(operations))
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        self.context("view")?.memory.view(ptr, byte_offset, byte_len)
    }

    fn copy_dtod(&self, dst: u64, src: u64, bytes: usize) -> BackendResult<()> {
        ops::copy_dtod(&*self.context("copy_dtod")?, dst, src, bytes)
    }

    fn fill(&self, dst: u64, dtype: DType, n: usize, value: f64) -> BackendResult<()> {
        ops::fill(&*self.context("fill")?, dst, dtype, n, value)
    }

    fn matmul(&self, desc: &MatmulDesc) -> BackendResult<()> {
        ops::matmul(&*self.context("matmul")?, "matmul", desc)
    }

    fn attention_ext(&self, desc: &AttentionDesc) -> BackendResult<()> {
        ops::attention(&*self.context("attention_ext")?, "attention_ext", desc)
    }

    fn unary_ext(&self, desc: &UnaryDesc<'_>) -> BackendResult<()> {
        ops::unary(&*self.context("unary_ext")?, "unary_ext", desc)
    }

    fn binary_ext(&self, desc: &BinaryDesc<'_>) -> BackendResult<()> {
        ops::binary(&*self.context("binary_ext")?, "binary_ext", desc)
    }

    fn compare(&self, desc: &CompareDesc<'_>) -> BackendResult<()> {
        ops::compare(&*self.context("compare")?, "compare", desc)
    }

    fn where_cond(&self, desc: &WhereDesc<'_>) -> BackendResult<()> {
        ops::where_cond(&*self.context("where_cond")?, "where_cond", desc)
    }

    fn clamp(&self, desc: &ClampDesc<'_>) -> BackendResult<()> {
        ops::clamp(&*self.context("clamp")?, "clamp", desc)
    }

    fn affine(&self, desc: &AffineDesc<'_>) -> BackendResult<()> {
        ops::affine(&*self.context("affine")?, "affine", desc)
    }

    fn copy(&self, desc: &CopyDesc<'_>) -> BackendResult<()> {
        ops::copy(&*self.context("copy")?, "copy", desc)
    }

    fn permute(&self, desc: &PermuteDesc<'_>) -> BackendResult<()> {
        ops::permute(&*self.context("permute")?, "permute", desc)
    }

    fn slice(&self, desc: &SliceDesc<'_>) -> BackendResult<()> {
        ops::slice(&*self.context("slice")?, "slice", desc)
    }

    fn concat(&self, desc: &ConcatDesc<'_>) -> BackendResult<()> {
        ops::concat(&*self.context("concat")?, "concat", desc)
    }

    fn pad(&self, desc: &PadDesc<'_>) -> BackendResult<()> {
        ops::pad(&*self.context("pad")?, "pad", desc)
    }

    fn repeat(&self, desc: &RepeatDesc<'_>) -> BackendResult<()> {
        ops::repeat(&*self.context("repeat")?, "repeat", desc)
    }

    fn reduce_ext(&self, desc: &ReduceDesc<'_>) -> BackendResult<()> {
        ops::reduce(&*self.context("reduce_ext")?, "reduce_ext", desc)
    }

    fn softmax(&self, desc: &SoftmaxDesc) -> BackendResult<()> {
        ops::softmax(&*self.context("softmax")?, "softmax", desc)
    }

    fn layer_norm(&self, desc: &LayerNormDesc) -> BackendResult<()> {
        ops::layer_norm(&*self.context("layer_norm")?, "layer_norm", desc)
    }

    fn rms_norm(&self, desc: &RmsNormDesc) -> BackendResult<()> {
        ops::rms_norm(&*self.context("rms_norm")?, "rms_norm", desc)
    }

    fn group_norm(&self, desc: &GroupNormDesc) -> BackendResult<()> {
        ops::group_norm(&*self.context("group_norm")?, "group_norm", desc)
    }

    fn batch_norm(&self, desc: &BatchNormDesc) -> BackendResult<()> {
        ops::batch_norm(&*self.context("batch_norm")?, "batch_norm", desc)
    }

    fn cumsum(&self, desc: &CumSumDesc) -> BackendResult<()> {
        ops::cumsum(&*self.context("cumsum")?, "cumsum", desc)
    }

    fn softmax_backward(&self, desc: &SoftmaxBackwardDesc) -> BackendResult<()> {
        ops::softmax_backward(&*self.context("softmax_backward")?, "softmax_backward", desc)
    }

    fn norm_backward(&self, desc: &NormBackwardDesc) -> BackendResult<()> {
        ops::norm_backward(&*self.context("norm_backward")?, "norm_backward", desc)
    }

    fn norm_backward_weight(&self, desc: &NormBackwardWeightDesc) -> BackendResult<()> {
        ops::norm_backward_weight(&*self.context("norm_backward_weight")?, "norm_backward_weight", desc)
    }

    fn conv2d(&self, desc: &ConvDesc) -> BackendResult<()> {
        ops::conv2d(&*self.context("conv2d")?, "conv2d", desc)
    }

    fn conv_transpose2d(&self, desc: &ConvTransposeDesc) -> BackendResult<()> {
        ops::conv_transpose2d(&*self.context("conv_transpose2d")?, "conv_transpose2d", desc)
    }

    fn conv2d_backward_data(&self, desc: &ConvBackwardDataDesc) -> BackendResult<()> {
        ops::conv2d_backward_data(&*self.context("conv2d_backward_data")?, "conv2d_backward_data", desc)
    }

    fn conv2d_backward_filter(&self, desc: &ConvBackwardFilterDesc) -> BackendResult<()> {
        ops::conv2d_backward_filter(&*self.context("conv2d_backward_filter")?, "conv2d_backward_filter", desc)
    }

    fn pool2d(&self, desc: &PoolDesc) -> BackendResult<()> {
        ops::pool2d(&*self.context("pool2d")?, "pool2d", desc)
    }

    fn pool2d_backward(&self, desc: &PoolBackwardDesc) -> BackendResult<()> {
        ops::pool2d_backward(&*self.context("pool2d_backward")?, "pool2d_backward", desc)
    }

    fn rope(&self, desc: &RopeDesc) -> BackendResult<()> {
        ops::rope(&*self.context("rope")?, "rope", desc)
    }

    fn gather(&self, desc: &GatherDesc) -> BackendResult<()> {
        ops::gather(&*self.context("gather")?, "gather", desc)
    }

    fn scatter(&self, desc: &ScatterDesc) -> BackendResult<()> {
        ops::scatter(&*self.context("scatter")?, "scatter", desc)
    }

    fn random(&self, desc: &RandomDesc) -> BackendResult<()> {
        ops::random(&*self.context("random")?, "random", desc)
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        let context = self.context("capabilities")?;
        let gpu = &context.gpu;
        let (features, limits) = (gpu.device.features(), gpu.device.limits());
        let mut capabilities = Capabilities::host();
        capabilities.f16 = features.contains(wgpu::Features::SHADER_F16);
        capabilities.subgroup_size = features.contains(wgpu::Features::SUBGROUP).then(|| {
            let info = gpu.adapter.get_info();
            (info.subgroup_min_size, info.subgroup_max_size)
        });
        capabilities.cooperative_matrix = gpu.cooperative_matrices;
        capabilities.max_alloc_bytes = usize::try_from(limits.max_buffer_size).unwrap_or(usize::MAX);
        capabilities.timestamps = features.contains(wgpu::Features::TIMESTAMP_QUERY);
        capabilities.blocking = cfg!(not(target_family = "wasm"));
        Ok(capabilities)
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        Ok(self.context("device_info")?.gpu.info.clone())
    }

    fn memory_stats(&self) -> MemoryStats {
        self.context_or_none().map(crate::context::Context::stats).unwrap_or_default()
    }

    fn trim(&self) -> BackendResult<usize> {
        Ok(self.context("trim")?.trim())
    }

    fn set_memory_budget(&self, bytes: Option<usize>) -> BackendResult<()> {
        self.context("set_memory_budget")?.memory.pool().set_budget(bytes);
        Ok(())
    }
}
