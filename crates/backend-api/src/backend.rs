//! The trait that every backend implements.

use std::any::Any;
use std::fmt::Debug;

use crate::command::for_each_operation;
use crate::desc::*;
use crate::{
    BackendError, BackendFuture, BackendResult, BackendTranspose, BinaryOp, Capabilities, Command, DType,
    DeviceInfo, MaybeSend, MaybeSync, MemoryStats, Operation, ReduceOp, UnaryOp,
};

/// The methods of the operations in the table: each hands its command to [`ComputeBackend::execute`].
macro_rules! provided_methods {
    ($($(#[$meta:meta])* fn $method:ident($desc:ty) => $variant:ident($held:ty);)*) => {
        $(
            $(#[$meta])*
            fn $method(&self, desc: $desc) -> BackendResult<()> {
                self.execute(stringify!($method), Command::$variant(desc))
            }
        )*
    };
}

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

    /// Runs an operation. This is what a backend implements; callers use the methods below, each of which
    /// makes a [`Command`] of its arguments and hands it on. `op` is the name of the called method, for
    /// errors.
    ///
    /// A backend that lacks an operation returns [`unsupported`](Self::unsupported), as this default does for
    /// all. One that stands before another (to log, to compare, to record) implements this one method, and
    /// [`forward!`](crate::forward)s what it leaves as it is. The methods of the operations are not to be
    /// implemented: a `Box` of the backend would not call them.
    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        _ = command;
        Err(self.unsupported(op))
    }

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
    ) -> BackendResult<()> {
        let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
        let desc = MatmulDesc::new(m, n, k, matrix(a_ptr, lda), matrix(b_ptr, ldb), matrix(c_ptr, ldc))
            .with_transpose(trans_a, trans_b)
            .with_scale(alpha, beta);
        self.execute("gemm", Command::Matmul(&desc))
    }

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
    ) -> BackendResult<()> {
        let matrix = |ptr, ld, stride| Matrix::new(ptr, DType::F32, ld).with_batch_stride(stride);
        let (a, b) = (matrix(a_ptr, lda, stride_a), matrix(b_ptr, ldb, stride_b));
        let desc = MatmulDesc::new(m, n, k, a, b, matrix(c_ptr, ldc, stride_c))
            .with_transpose(trans_a, trans_b)
            .with_scale(alpha, beta)
            .with_batch(batch_count);
        self.execute("batched_gemm", Command::Matmul(&desc))
    }

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
    ) -> BackendResult<()> {
        let op = "conv2d_forward";
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
        self.execute(op, Command::Conv(&desc))
    }

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
    ) -> BackendResult<()> {
        let shape = AttentionShape { batch, heads, seq_q, seq_kv, head_dim };
        let desc = AttentionDesc::new(DType::F32, q_ptr, k_ptr, v_ptr, o_ptr, shape)
            .with_scale(scale)
            .with_causal(causal);
        self.execute("attention", Command::Attention(&desc))
    }

    /// Reduces `axis` of a packed f32 tensor; the output has the input's shape without it, as f32, or as i32
    /// where the operation gives [an index](ReduceOp::is_index).
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
        self.execute("reduce", Command::Reduce(&desc))
    }

    /// `output[i] = op(input[i])` for `n` elements of f32. The output may be exactly the input.
    fn unary(&self, op: UnaryOp, input_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        let shape = [n];
        let vector = |ptr| TensorDesc::packed(ptr, DType::F32, &shape);
        self.execute("unary", Command::Unary(&UnaryDesc::new(op, vector(input_ptr), vector(output_ptr))))
    }

    /// `output[i] = op(a[i], b[i])` for `n` elements of f32. The output may be exactly an input.
    fn binary(&self, op: BinaryOp, a_ptr: u64, b_ptr: u64, output_ptr: u64, n: usize) -> BackendResult<()> {
        let shape = [n];
        let vector = |ptr| TensorDesc::packed(ptr, DType::F32, &shape);
        let desc = BinaryDesc::new(op, vector(a_ptr), vector(b_ptr), vector(output_ptr));
        self.execute("binary", Command::Binary(&desc))
    }

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

    /// [`alloc`](Self::alloc) of memory whose bytes are 0.
    ///
    /// # Errors
    /// The errors of [`alloc`](Self::alloc), [`fill`](Self::fill) and [`view`](Self::view), with the memory given
    /// back.
    fn alloc_zeroed(&self, bytes: usize) -> BackendResult<u64> {
        alloc_set(self, "alloc_zeroed", bytes, 0)
    }

    /// Gives a handle back. Work that uses its memory still finishes.
    fn free(&self, ptr: u64) -> BackendResult<()>;

    /// Writes `src` to the start of `dst`. Returns when `src` may be reused.
    fn copy_htod(&self, dst: u64, src: &[u8]) -> BackendResult<()>;

    /// Reads from the start of `src` into all of `dst`, waiting for the work before it.
    fn copy_dtoh(&self, dst: &mut [u8], src: u64) -> BackendResult<()>;

    /// [`copy_dtoh`](Self::copy_dtoh) that waits without blocking. It reads what is there when it is first polled, or
    /// once a device that is far behind has caught up, whatever calls follow until it is ready. Cancelling it leaves `dst` as it
    /// was. A backend may read more than 256 MiB in parts, each of them when those before are in `dst`.
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
    /// Each operation is called once or twice, on a backend that shares this one's memory: arguments are checked, and
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
        self.execute("copy_dtod", Command::CopyBytes { dst, src, bytes })
    }

    /// Sets `n` elements to `value`, converted to `dtype` as [`copy`](Self::copy) would convert an f64.
    fn fill(&self, dst: u64, dtype: DType, n: usize, value: f64) -> BackendResult<()> {
        self.execute("fill", Command::Fill { dst, dtype, n, value })
    }

    for_each_operation!(provided_methods);

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

    /// Bounds the memory in use, kept for reuse and being released together, staging buffers aside; `None` leaves it to
    /// the device. Memory beyond a new bound that is in use stays.
    fn set_memory_budget(&self, bytes: Option<usize>) -> BackendResult<()> {
        _ = bytes;
        Err(self.unsupported("set_memory_budget"))
    }

    /// The backend itself, for callers that want what one has beyond the contract; `None` from a backend that
    /// keeps that to itself. `downcast_ref` of `dyn ComputeBackend` asks for a type.
    fn as_any(&self) -> Option<&dyn Any> {
        None
    }

    /// The error of an operation that this backend doesn't have.
    fn unsupported(&self, op: &'static str) -> BackendError {
        BackendError::Unsupported { op, need: format!("an implementation in the backend {:?}", self.name()) }
    }
}

impl dyn ComputeBackend + '_ {
    /// The backend as a `T`, if it is one: the way to what a backend has beyond the contract, such as
    /// `backend.downcast_ref::<WebGpuBackend>()` to products of f16 and explanations of plans.
    #[must_use]
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        self.as_any()?.downcast_ref()
    }
}

/// Allocates bytes that all are `value`: whole words by a fill, the last one to three by an upload.
///
/// # Errors
/// Errors of [`alloc`](ComputeBackend::alloc), [`Command::Fill`], [`view`](ComputeBackend::view) and
/// [`copy_htod`](ComputeBackend::copy_htod); nothing is left behind.
pub fn alloc_set<B: ComputeBackend + ?Sized>(
    backend: &B,
    op: &'static str,
    bytes: usize,
    value: u8,
) -> BackendResult<u64> {
    let ptr = backend.alloc(bytes)?;
    let (words, rest) = (bytes / 4, bytes % 4);
    let word = u32::from_ne_bytes([value; 4]).into();
    let set = || {
        backend.execute(op, Command::Fill { dst: ptr, dtype: DType::U32, n: words, value: word })?;
        if rest == 0 {
            return Ok(());
        }
        let tail = backend.view(ptr, words * 4, rest)?;
        let written = backend.copy_htod(tail, &[value; 3][..rest]);
        backend.free(tail)?;
        written
    };
    match set() {
        Ok(()) => Ok(ptr),
        Err(error) => {
            backend.free(ptr)?;
            Err(error)
        }
    }
}
