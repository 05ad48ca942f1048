//! The trait that every backend implements.

use std::fmt::Debug;

use crate::desc::{
    AffineDesc, AttentionDesc, BatchNormDesc, BinaryDesc, ClampDesc, CompareDesc, ConcatDesc,
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvTransposeDesc, CopyDesc, CumSumDesc,
    GatherDesc, GroupNormDesc, LayerNormDesc, MatmulDesc, NormBackwardDesc, NormBackwardWeightDesc, PadDesc,
    PermuteDesc, PoolBackwardDesc, PoolDesc, RandomDesc, ReduceDesc, RepeatDesc, RmsNormDesc, RopeDesc,
    ScatterDesc, SliceDesc, SoftmaxBackwardDesc, SoftmaxDesc, UnaryDesc, WhereDesc,
};
use crate::{
    BackendError, BackendFuture, BackendResult, BackendTranspose, BinaryOp, Capabilities, DType, DeviceInfo,
    MaybeSend, MaybeSync, MemoryStats, Operation, ReduceOp, UnaryOp,
};

/// A device and the operations on its memory.
///
/// # Memory
/// [`alloc`](Self::alloc) returns a handle: an opaque number, never 0. [`view`](Self::view) makes a handle to
/// a part of an allocation; it is valid wherever a handle is. The memory lives until its last handle is
/// freed. New memory holds arbitrary bytes.
///
/// # Order
/// Operations may run later than they are called, but results are as if each had finished before the next
/// call. Every method may be called from several threads; each thread's calls keep their order.
///
/// # Numbers
/// The positional operations work on packed or row-major f32. Everything that is not named by a call stays as
/// it is, to the bit. A call with a zero dimension succeeds, and a handle of which it would touch nothing is
/// not looked at. An output overlapping another operand is an error, except that an element-wise output may
/// be exactly an input.
///
/// # Errors
/// Every argument is checked before anything happens, so a failed call has changed nothing. Each method can
/// return the variants of [`BackendError`] that its arguments allow, and besides those [`NotInitialized`],
/// [`DeviceLost`], [`OutOfMemory`] and [`Kernel`]. What the device reports late is returned by the next read
/// or synchronize.
///
/// [`NotInitialized`]: BackendError::NotInitialized
/// [`DeviceLost`]: BackendError::DeviceLost
/// [`OutOfMemory`]: BackendError::OutOfMemory
/// [`Kernel`]: BackendError::Kernel
#[expect(clippy::too_many_arguments, reason = "the positional methods follow BLAS")]
pub trait ComputeBackend: Debug + MaybeSend + MaybeSync {
    /// The backend's name in a registry, such as `"webgpu"`.
    fn name(&self) -> &str;

    /// Opens the device. Does nothing when it is open; opens a new one when it was lost, after which every
    /// earlier handle is [`InvalidHandle`](BackendError::InvalidHandle).
    fn init(&mut self) -> BackendResult<()>;

    /// Whether the device is open and not known to be lost.
    fn is_initialized(&self) -> bool;

    /// `C = alpha · op(A) · op(B) + beta · C`, row-major f32: op(A) is m×k, op(B) k×n, C m×n.
    ///
    /// `lda` is at least the columns of A as stored (k, or m if transposed), `ldb` likewise (n, or k), `ldc`
    /// at least n. With `beta` 0, C is not read. With `k` 0, `C = beta · C`.
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
    ) -> BackendResult<()>;

    /// [`gemm`](Self::gemm) of `batch_count` matrices, matrix `i` starting `i · stride` elements after its
    /// handle's start. A stride of 0 repeats A or B; the matrices of C must not overlap.
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
    ) -> BackendResult<()>;

    /// Convolution of an NCHW input with a KCRS filter; shapes have four extents, `stride` and `padding` two.
    /// See [`ConvDesc`] for the formula.
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
    ) -> BackendResult<()>;

    /// `O = softmax(scale · Q·Kᵀ) · V` over packed f32 `[batch, heads, seq, head_dim]`. With `causal`, query
    /// i sees key j when `j ≤ i + seq_kv − seq_q`; a query that sees no key gives zeros.
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
    ) -> BackendResult<()>;

    /// Reduces `axis` of a packed f32 tensor; the output has the input's shape without it, as f32, or as i32
    /// where the operation gives [an index](ReduceOp::is_index).
    fn reduce(
        &self,
        op: ReduceOp,
        input_ptr: u64,
        output_ptr: u64,
        shape: &[usize],
        axis: usize,
    ) -> BackendResult<()>;

    /// `output[i] = op(input[i])` for `n` numbers of f32. The output may be exactly the input.
    fn unary(&self, op: UnaryOp, input_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()>;

    /// `output[i] = op(a[i], b[i])` for `n` numbers of f32. The output may be exactly an input.
    fn binary(&self, op: BinaryOp, a_ptr: u64, b_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()>;

    /// Waits until everything called so far has finished.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout), [`WouldBlock`](BackendError::WouldBlock), and what the device
    /// reported late.
    fn synchronize(&self) -> BackendResult<()>;

    /// Allocates `bytes` of device memory. 0 bytes give a valid handle to nothing.
    ///
    /// # Errors
    /// [`OutOfMemory`](BackendError::OutOfMemory), [`Limit`](BackendError::Limit).
    fn alloc(&self, bytes: usize) -> BackendResult<u64>;

    /// Gives a handle back. Work that uses its memory still finishes.
    fn free(&self, ptr: u64) -> BackendResult<()>;

    /// Writes `src` to the start of `dst`. Returns when `src` may be reused.
    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()>;

    /// Reads from the start of `src` into all of `dst`, waiting for the work before it.
    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()>;

    /// [`copy_dtoh`](Self::copy_dtoh) that waits without blocking. Cancelling it leaves `dst` as it was.
    fn copy_dtoh_async<'a>(&'a self, dst: &'a mut [u8], src: u64) -> BackendFuture<'a, ()> {
        Box::pin(async move { self.copy_dtoh(dst, src) })
    }

    /// [`synchronize`](Self::synchronize) that waits without blocking.
    fn synchronize_async(&self) -> BackendFuture<'_, ()> {
        Box::pin(async move { self.synchronize() })
    }

    /// Compiles what `operations` need, without running them, so that their first use waits for no compiler.
    /// Waits without blocking, and lets others go on after each kernel.
    ///
    /// Each operation is called once, on a backend that shares this one's memory: arguments are checked, and
    /// what is chosen by shape or alignment is chosen as it will be. Allocations, transfers and captures among
    /// its calls are made, but no kernel runs. A backend that compiles nothing calls nothing.
    ///
    /// # Errors
    /// What the operations return, and [`Kernel`](BackendError::Kernel).
    fn warm_up_async<'a>(&'a self, operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        _ = operations;
        Box::pin(async { Ok(()) })
    }

    /// A handle to `byte_len` bytes of `ptr`'s memory, from `byte_offset` on. To be used as an element type's
    /// tensor, it must start at a multiple of that type's size. Freed like any handle.
    fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        _ = (ptr, byte_offset, byte_len);
        Err(self.unsupported("view"))
    }

    /// Copies `bytes` from the start of `src` to the start of `dst`, which must not overlap.
    fn copy_dtod(&self, dst: u64, src: u64, bytes: usize) -> BackendResult<()> {
        _ = (dst, src, bytes);
        Err(self.unsupported("copy_dtod"))
    }

    /// Sets `n` elements to `value`, converted to `dtype` as [`copy`](Self::copy) would convert an f64.
    fn fill(&self, dst: u64, dtype: DType, n: usize, value: f64) -> BackendResult<()> {
        _ = (dst, dtype, n, value);
        Err(self.unsupported("fill"))
    }

    /// A matrix product with element types, strides, a batch, a bias and an activation.
    fn matmul(&self, desc: &MatmulDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("matmul"))
    }

    /// [`attention`](Self::attention) with element types, strides, a mask, key lengths, grouped heads, a
    /// window, bounded scores, and their log-sum-exp.
    fn attention_ext(&self, desc: &AttentionDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("attention_ext"))
    }

    /// [`unary`](Self::unary) over strided tensors.
    fn unary_ext(&self, desc: &UnaryDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("unary_ext"))
    }

    /// [`binary`](Self::binary) over strided tensors and numbers with broadcasting: adds a bias, scales by a
    /// vector, gates by [`Swiglu`](BinaryOp::Swiglu).
    #[doc(alias = "swiglu")]
    #[doc(alias = "geglu")]
    #[doc(alias = "glu")]
    fn binary_ext(&self, desc: &BinaryDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("binary_ext"))
    }

    /// Compares strided tensors and numbers with broadcasting; 1 where it holds, 0 where it doesn't.
    fn compare(&self, desc: &CompareDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("compare"))
    }

    /// Takes each element from one of two strided tensors or numbers, by a condition.
    #[doc(alias = "where")]
    #[doc(alias = "select")]
    #[doc(alias = "masked_fill")]
    fn where_cond(&self, desc: &WhereDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("where_cond"))
    }

    /// Bounds each element from below and above.
    #[doc(alias = "clip")]
    fn clamp(&self, desc: &ClampDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("clamp"))
    }

    /// Scales each element and adds a number.
    fn affine(&self, desc: &AffineDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("affine"))
    }

    /// Copies a strided tensor, converting the element type.
    #[doc(alias = "cast")]
    #[doc(alias = "contiguous")]
    #[doc(alias = "transpose")]
    fn copy(&self, desc: &CopyDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("copy"))
    }

    /// Puts the dimensions of a tensor in another order.
    #[doc(alias = "transpose")]
    fn permute(&self, desc: &PermuteDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("permute"))
    }

    /// Takes a box out of a tensor, or every n-th element of it.
    #[doc(alias = "narrow")]
    #[doc(alias = "split")]
    fn slice(&self, desc: &SliceDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("slice"))
    }

    /// Puts tensors after each other along an axis.
    #[doc(alias = "cat")]
    #[doc(alias = "stack")]
    fn concat(&self, desc: &ConcatDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("concat"))
    }

    /// Puts a value around a tensor.
    fn pad(&self, desc: &PadDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("pad"))
    }

    /// Repeats a tensor along its dimensions.
    #[doc(alias = "tile")]
    #[doc(alias = "expand")]
    #[doc(alias = "repeat_interleave")]
    fn repeat(&self, desc: &RepeatDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("repeat"))
    }

    /// [`reduce`](Self::reduce) over any axes of a strided tensor of any element type.
    fn reduce_ext(&self, desc: &ReduceDesc<'_>) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("reduce_ext"))
    }

    /// Softmax along an axis, or its logarithm.
    fn softmax(&self, desc: &SoftmaxDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("softmax"))
    }

    /// Layer normalisation of rows, with an optional residual.
    fn layer_norm(&self, desc: &LayerNormDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("layer_norm"))
    }

    /// Root-mean-square normalisation of rows, with an optional residual.
    fn rms_norm(&self, desc: &RmsNormDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("rms_norm"))
    }

    /// Normalisation of groups of channels.
    fn group_norm(&self, desc: &GroupNormDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("group_norm"))
    }

    /// Normalisation of channels by given statistics.
    fn batch_norm(&self, desc: &BatchNormDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("batch_norm"))
    }

    /// Cumulative sum along an axis.
    fn cumsum(&self, desc: &CumSumDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("cumsum"))
    }

    /// The gradient of [`softmax`](Self::softmax).
    fn softmax_backward(&self, desc: &SoftmaxBackwardDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("softmax_backward"))
    }

    /// The gradient of [`layer_norm`](Self::layer_norm) or [`rms_norm`](Self::rms_norm) with respect to the
    /// rows.
    fn norm_backward(&self, desc: &NormBackwardDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("norm_backward"))
    }

    /// The gradient of [`layer_norm`](Self::layer_norm) or [`rms_norm`](Self::rms_norm) with respect to the
    /// weight.
    fn norm_backward_weight(&self, desc: &NormBackwardWeightDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("norm_backward_weight"))
    }

    /// [`conv2d_forward`](Self::conv2d_forward) with element types, groups, dilation, padding of each side, a
    /// bias and an activation, of images in either layout.
    #[doc(alias = "conv1d")]
    #[doc(alias = "depthwise")]
    fn conv2d(&self, desc: &ConvDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("conv2d"))
    }

    /// Transposed convolution.
    #[doc(alias = "conv_transpose1d")]
    #[doc(alias = "deconvolution")]
    fn conv_transpose2d(&self, desc: &ConvTransposeDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("conv_transpose2d"))
    }

    /// The gradient of [`conv2d`](Self::conv2d) with respect to its input.
    fn conv2d_backward_data(&self, desc: &ConvBackwardDataDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("conv2d_backward_data"))
    }

    /// The gradient of [`conv2d`](Self::conv2d) with respect to its filters.
    fn conv2d_backward_filter(&self, desc: &ConvBackwardFilterDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("conv2d_backward_filter"))
    }

    /// The largest or the mean of each window of an image.
    #[doc(alias = "max_pool2d")]
    #[doc(alias = "avg_pool2d")]
    fn pool2d(&self, desc: &PoolDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("pool2d"))
    }

    /// The gradient of [`pool2d`](Self::pool2d).
    fn pool2d_backward(&self, desc: &PoolBackwardDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("pool2d_backward"))
    }

    /// Rotary position embedding.
    fn rope(&self, desc: &RopeDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("rope"))
    }

    /// Rows or elements of a table by index, along any axis: the embedding lookup.
    #[doc(alias = "index_select")]
    #[doc(alias = "take")]
    #[doc(alias = "take_along_axis")]
    #[doc(alias = "embedding")]
    fn gather(&self, desc: &GatherDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("gather"))
    }

    /// Puts, adds or compares rows or elements into a table by index, along any axis. Deterministic.
    #[doc(alias = "scatter_add")]
    #[doc(alias = "index_add")]
    #[doc(alias = "index_put")]
    fn scatter(&self, desc: &ScatterDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("scatter"))
    }

    /// Random numbers, uniform or normal, the same on every device.
    #[doc(alias = "rand")]
    #[doc(alias = "randn")]
    #[doc(alias = "uniform")]
    #[doc(alias = "normal")]
    fn random(&self, desc: &RandomDesc) -> BackendResult<()> {
        _ = desc;
        Err(self.unsupported("random"))
    }

    /// Checks and records the operations that `record` calls on the backend that it is handed, and runs none
    /// of them. Returns the handle of a graph, to be given back with [`free_graph`](Self::free_graph).
    ///
    /// A graph holds what its operations need: their memory, which outlives its handles, and memory for
    /// results in between, which counts as in use. What may differ from replay to replay lies in device memory:
    /// inputs, tokens, positions, lengths, the [offset](RandomDesc::offset_ptr) of random numbers.
    ///
    /// Only operations can be captured. The backend handed to `record` answers questions
    /// ([`capabilities`](Self::capabilities), [`memory_stats`](Self::memory_stats), …), and every other call
    /// on it is [`Capturing`](BackendError::Capturing): memory, transfers, waits, warm-ups, and graphs within
    /// graphs. Calls on this backend run as ever, by `record` too, and aren't captured. A lost device takes its
    /// graphs with it.
    ///
    /// ```
    /// use backend_api::{BackendResult, ComputeBackend, UnaryOp};
    ///
    /// /// |tanh(x)| of each chunk of a stream, by one buffer.
    /// fn squash(backend: &dyn ComputeBackend, stream: &mut [Vec<u8>]) -> BackendResult<()> {
    ///     let Some(bytes) = stream.first().map(Vec::len) else { return Ok(()) };
    ///     let x = backend.alloc(bytes)?;
    ///     let graph = backend.capture(&mut |recorded| {
    ///         recorded.unary(UnaryOp::Tanh, x, x, bytes / 4)?;
    ///         recorded.unary(UnaryOp::Abs, x, x, bytes / 4)
    ///     })?;
    ///     for chunk in stream {
    ///         backend.copy_htod(x, chunk)?;
    ///         backend.replay(graph)?;
    ///         backend.copy_dtoh(chunk, x)?;
    ///     }
    ///     backend.free_graph(graph)?;
    ///     backend.free(x)
    /// }
    /// ```
    ///
    /// # Errors
    /// What `record` returns, with nothing kept; [`OutOfMemory`](BackendError::OutOfMemory).
    #[doc(alias = "cuda_graph")]
    #[doc(alias = "stream_capture")]
    fn capture(
        &self,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        _ = record;
        Err(self.unsupported("capture"))
    }

    /// Runs the operations of a graph, as if they were called now, in their order and with no other thread's
    /// between.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle).
    #[doc(alias = "graph_launch")]
    fn replay(&self, graph: u64) -> BackendResult<()> {
        _ = graph;
        Err(self.unsupported("replay"))
    }

    /// Gives a graph back. Replays of it still finish.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle).
    fn free_graph(&self, graph: u64) -> BackendResult<()> {
        _ = graph;
        Err(self.unsupported("free_graph"))
    }

    /// What the device can do.
    fn capabilities(&self) -> BackendResult<Capabilities>;

    /// Which device it is.
    fn device_info(&self) -> BackendResult<DeviceInfo>;

    /// Where the memory is.
    fn memory_stats(&self) -> MemoryStats {
        MemoryStats::default()
    }

    /// Returns memory kept for reuse to the system; how many bytes.
    fn trim(&self) -> BackendResult<usize> {
        Ok(0)
    }

    /// Bounds the memory in use and kept for reuse together; `None` leaves it to the device. Memory beyond a
    /// new bound that is in use stays.
    fn set_memory_budget(&self, bytes: Option<usize>) -> BackendResult<()> {
        _ = bytes;
        Err(self.unsupported("set_memory_budget"))
    }

    /// The error of an operation that this backend doesn't have.
    fn unsupported(&self, op: &'static str) -> BackendError {
        BackendError::Unsupported { op, need: format!("an implementation in the backend {:?}", self.name()) }
    }
}
