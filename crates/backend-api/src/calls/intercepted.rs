//! A backend whose operations are handed over instead of run.

use std::fmt::Debug;
use std::future::ready;

use super::Call;
use super::owned::{OwnedTensor, OwnedValue};
use crate::desc::{
    AffineDesc, AttentionDesc, BatchNormDesc, BinaryDesc, ClampDesc, CompareDesc, ConcatDesc,
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvTransposeDesc, CopyDesc, CumSumDesc,
    GatherDesc, GroupNormDesc, LayerNormDesc, MatmulDesc, NormBackwardDesc, NormBackwardWeightDesc, PadDesc,
    PermuteDesc, PoolBackwardDesc, PoolDesc, RandomDesc, ReduceDesc, RepeatDesc, RmsNormDesc, RopeDesc,
    ScatterDesc, SliceDesc, SoftmaxBackwardDesc, SoftmaxDesc, UnaryDesc, WhereDesc,
};
use crate::{
    BackendFuture, BackendResult, BackendTranspose, BinaryOp, Capabilities, ComputeBackend, DType,
    DeviceInfo, MaybeSend, MaybeSync, MemoryStats, Operation, ReduceOp, UnaryOp,
};

/// What becomes of the calls on an [`Intercepted`] backend.
pub trait Intercept: Debug + MaybeSend + MaybeSync {
    /// The backend behind it, which answers questions: its name, its device, what it can do.
    fn backend(&self) -> &dyn ComputeBackend;

    /// An operation was called.
    ///
    /// # Errors
    /// What the caller of the operation gets.
    fn operation(&self, call: Call) -> BackendResult<()>;

    /// The backend that makes a call which is no operation: of memory, a transfer, a wait, a graph.
    ///
    /// # Errors
    /// What the caller gets instead.
    fn other(&self, op: &'static str) -> BackendResult<&dyn ComputeBackend>;
}

/// A backend that hands its operations to an [`Intercept`], as [`Call`]s that own their arguments.
#[derive(Debug)]
pub struct Intercepted<I>(pub I);

/// Methods that take a descriptor without references.
macro_rules! operations {
    ($($name:ident: $desc:ty),+ $(,)?) => {
        $(fn $name(&self, desc: &$desc) -> BackendResult<()> {
            let desc = *desc;
            self.0.operation(Box::new(move |backend| backend.$name(&desc)))
        })+
    };
}

impl<I: Intercept> ComputeBackend for Intercepted<I> {
    fn name(&self) -> &str {
        self.0.backend().name()
    }

    fn init(&mut self) -> BackendResult<()> {
        self.0.other("init").map(drop)
    }

    fn is_initialized(&self) -> bool {
        self.0.backend().is_initialized()
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
        self.0.operation(Box::new(move |backend| {
            backend.gemm(trans_a, trans_b, m, n, k, alpha, a_ptr, lda, b_ptr, ldb, beta, c_ptr, ldc)
        }))
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
        self.0.operation(Box::new(move |backend| {
            backend.batched_gemm(
                trans_a,
                trans_b,
                m,
                n,
                k,
                alpha,
                a_ptr,
                lda,
                stride_a,
                b_ptr,
                ldb,
                stride_b,
                beta,
                c_ptr,
                ldc,
                stride_c,
                batch_count,
            )
        }))
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
        let shapes = [input_shape, filter_shape, output_shape, stride, padding].map(<[usize]>::to_vec);
        self.0.operation(Box::new(move |backend| {
            let [input, filter, output, stride, padding] = &shapes;
            backend.conv2d_forward(input_ptr, input, filter_ptr, filter, output_ptr, output, stride, padding)
        }))
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
        self.0.operation(Box::new(move |backend| {
            backend
                .attention(q_ptr, k_ptr, v_ptr, o_ptr, batch, heads, seq_q, seq_kv, head_dim, scale, causal)
        }))
    }

    fn reduce(
        &self,
        op: ReduceOp,
        input_ptr: u64,
        output_ptr: u64,
        shape: &[usize],
        axis: usize,
    ) -> BackendResult<()> {
        let shape = shape.to_vec();
        self.0.operation(Box::new(move |backend| backend.reduce(op, input_ptr, output_ptr, &shape, axis)))
    }

    fn unary(&self, op: UnaryOp, input_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        self.0.operation(Box::new(move |backend| backend.unary(op, input_ptr, output_ptr, n)))
    }

    fn binary(&self, op: BinaryOp, a_ptr: u64, b_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        self.0.operation(Box::new(move |backend| backend.binary(op, a_ptr, b_ptr, output_ptr, n)))
    }

    fn copy_dtod(&self, dst: u64, src: u64, bytes: usize) -> BackendResult<()> {
        self.0.operation(Box::new(move |backend| backend.copy_dtod(dst, src, bytes)))
    }

    fn fill(&self, dst: u64, dtype: DType, n: usize, value: f64) -> BackendResult<()> {
        self.0.operation(Box::new(move |backend| backend.fill(dst, dtype, n, value)))
    }

    operations! {
        matmul: MatmulDesc,
        attention_ext: AttentionDesc,
        softmax: SoftmaxDesc,
        layer_norm: LayerNormDesc,
        rms_norm: RmsNormDesc,
        group_norm: GroupNormDesc,
        batch_norm: BatchNormDesc,
        cumsum: CumSumDesc,
        softmax_backward: SoftmaxBackwardDesc,
        norm_backward: NormBackwardDesc,
        norm_backward_weight: NormBackwardWeightDesc,
        conv2d: ConvDesc,
        conv_transpose2d: ConvTransposeDesc,
        conv2d_backward_data: ConvBackwardDataDesc,
        conv2d_backward_filter: ConvBackwardFilterDesc,
        pool2d: PoolDesc,
        pool2d_backward: PoolBackwardDesc,
        rope: RopeDesc,
        gather: GatherDesc,
        scatter: ScatterDesc,
        random: RandomDesc,
    }

    fn unary_ext(&self, desc: &UnaryDesc<'_>) -> BackendResult<()> {
        let UnaryDesc { op, input, output } = *desc;
        let (input, output) = (OwnedTensor::from(input), OwnedTensor::from(output));
        self.0.operation(Box::new(move |backend| {
            backend.unary_ext(&UnaryDesc { op, input: input.desc(), output: output.desc() })
        }))
    }

    fn binary_ext(&self, desc: &BinaryDesc<'_>) -> BackendResult<()> {
        let BinaryDesc { op, a, b, output } = *desc;
        let (a, b, output) = (OwnedValue::from(a), OwnedValue::from(b), OwnedTensor::from(output));
        self.0.operation(Box::new(move |backend| {
            backend.binary_ext(&BinaryDesc { op, a: a.desc(), b: b.desc(), output: output.desc() })
        }))
    }

    fn compare(&self, desc: &CompareDesc<'_>) -> BackendResult<()> {
        let CompareDesc { op, a, b, output } = *desc;
        let (a, b, output) = (OwnedValue::from(a), OwnedValue::from(b), OwnedTensor::from(output));
        self.0.operation(Box::new(move |backend| {
            backend.compare(&CompareDesc { op, a: a.desc(), b: b.desc(), output: output.desc() })
        }))
    }

    fn where_cond(&self, desc: &WhereDesc<'_>) -> BackendResult<()> {
        let WhereDesc { condition, a, b, output } = *desc;
        let (condition, output) = (OwnedTensor::from(condition), OwnedTensor::from(output));
        let (a, b) = (OwnedValue::from(a), OwnedValue::from(b));
        self.0.operation(Box::new(move |backend| {
            let (condition, output) = (condition.desc(), output.desc());
            backend.where_cond(&WhereDesc { condition, a: a.desc(), b: b.desc(), output })
        }))
    }

    fn clamp(&self, desc: &ClampDesc<'_>) -> BackendResult<()> {
        let ClampDesc { input, output, min, max } = *desc;
        let (input, output) = (OwnedTensor::from(input), OwnedTensor::from(output));
        self.0.operation(Box::new(move |backend| {
            backend.clamp(&ClampDesc { input: input.desc(), output: output.desc(), min, max })
        }))
    }

    fn affine(&self, desc: &AffineDesc<'_>) -> BackendResult<()> {
        let AffineDesc { input, output, scale, bias } = *desc;
        let (input, output) = (OwnedTensor::from(input), OwnedTensor::from(output));
        self.0.operation(Box::new(move |backend| {
            backend.affine(&AffineDesc { input: input.desc(), output: output.desc(), scale, bias })
        }))
    }

    fn copy(&self, desc: &CopyDesc<'_>) -> BackendResult<()> {
        let CopyDesc { src, dst } = *desc;
        let (src, dst) = (OwnedTensor::from(src), OwnedTensor::from(dst));
        self.0
            .operation(Box::new(move |backend| backend.copy(&CopyDesc { src: src.desc(), dst: dst.desc() })))
    }

    fn permute(&self, desc: &PermuteDesc<'_>) -> BackendResult<()> {
        let PermuteDesc { input, output, axes } = *desc;
        let (input, output, axes) = (OwnedTensor::from(input), OwnedTensor::from(output), axes.to_vec());
        self.0.operation(Box::new(move |backend| {
            backend.permute(&PermuteDesc { input: input.desc(), output: output.desc(), axes: &axes })
        }))
    }

    fn slice(&self, desc: &SliceDesc<'_>) -> BackendResult<()> {
        let SliceDesc { input, output, starts, steps } = *desc;
        let (input, output) = (OwnedTensor::from(input), OwnedTensor::from(output));
        let (starts, steps) = (starts.to_vec(), steps.map(<[usize]>::to_vec));
        self.0.operation(Box::new(move |backend| {
            let (input, output) = (input.desc(), output.desc());
            backend.slice(&SliceDesc { input, output, starts: &starts, steps: steps.as_deref() })
        }))
    }

    fn concat(&self, desc: &ConcatDesc<'_>) -> BackendResult<()> {
        let ConcatDesc { inputs, output, axis } = *desc;
        let inputs: Vec<OwnedTensor> = inputs.iter().map(|&input| input.into()).collect();
        let output = OwnedTensor::from(output);
        self.0.operation(Box::new(move |backend| {
            let inputs: Vec<_> = inputs.iter().map(OwnedTensor::desc).collect();
            backend.concat(&ConcatDesc { inputs: &inputs, output: output.desc(), axis })
        }))
    }

    fn pad(&self, desc: &PadDesc<'_>) -> BackendResult<()> {
        let PadDesc { input, output, before, value } = *desc;
        let (input, output, before) = (OwnedTensor::from(input), OwnedTensor::from(output), before.to_vec());
        self.0.operation(Box::new(move |backend| {
            backend.pad(&PadDesc { input: input.desc(), output: output.desc(), before: &before, value })
        }))
    }

    fn repeat(&self, desc: &RepeatDesc<'_>) -> BackendResult<()> {
        let RepeatDesc { input, output, interleaved } = *desc;
        let (input, output) = (OwnedTensor::from(input), OwnedTensor::from(output));
        self.0.operation(Box::new(move |backend| {
            backend.repeat(&RepeatDesc { input: input.desc(), output: output.desc(), interleaved })
        }))
    }

    fn reduce_ext(&self, desc: &ReduceDesc<'_>) -> BackendResult<()> {
        let ReduceDesc { op, input, axes, output, output_dtype, output_strides } = *desc;
        let (input, axes) = (OwnedTensor::from(input), axes.to_vec());
        let strides = output_strides.map(<[usize]>::to_vec);
        self.0.operation(Box::new(move |backend| {
            let (input, output_strides) = (input.desc(), strides.as_deref());
            backend.reduce_ext(&ReduceDesc { op, input, axes: &axes, output, output_dtype, output_strides })
        }))
    }

    fn synchronize(&self) -> BackendResult<()> {
        self.0.other("synchronize")?.synchronize()
    }

    fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        self.0.other("alloc")?.alloc(bytes)
    }

    fn free(&self, ptr: u64) -> BackendResult<()> {
        self.0.other("free")?.free(ptr)
    }

    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        self.0.other("view")?.view(ptr, byte_offset, byte_len)
    }

    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()> {
        self.0.other("copy_htod")?.copy_htod(dst, src)
    }

    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()> {
        self.0.other("copy_dtoh")?.copy_dtoh(dst, src)
    }

    fn copy_dtoh_async<'a>(&'a self, dst: &'a mut [u8], src: u64) -> BackendFuture<'a, ()> {
        match self.0.other("copy_dtoh_async") {
            Ok(backend) => backend.copy_dtoh_async(dst, src),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn synchronize_async(&self) -> BackendFuture<'_, ()> {
        match self.0.other("synchronize_async") {
            Ok(backend) => backend.synchronize_async(),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn warm_up_async<'a>(&'a self, operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        match self.0.other("warm_up_async") {
            Ok(backend) => backend.warm_up_async(operations),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn capture(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        self.0.other("capture")?.capture(record)
    }

    fn replay(&self, graph: u64) -> BackendResult<()> {
        self.0.other("replay")?.replay(graph)
    }

    fn free_graph(&self, graph: u64) -> BackendResult<()> {
        self.0.other("free_graph")?.free_graph(graph)
    }

    fn capabilities(&self) -> BackendResult<Capabilities> {
        self.0.backend().capabilities()
    }

    fn device_info(&self) -> BackendResult<DeviceInfo> {
        self.0.backend().device_info()
    }

    fn memory_stats(&self) -> MemoryStats {
        self.0.backend().memory_stats()
    }

    fn trim(&self) -> BackendResult<usize> {
        self.0.other("trim")?.trim()
    }

    fn set_memory_budget(&self, bytes: Option<usize>) -> BackendResult<()> {
        self.0.other("set_memory_budget")?.set_memory_budget(bytes)
    }
}
