//! `WebGpuBackend`: opening it, and what it has beyond the contract.

use std::collections::HashSet;
#[cfg(not(target_family = "wasm"))]
use std::path::PathBuf;
use std::time::Duration;

use backend_api::desc::{AttentionDesc, ConvDesc, MatmulDesc, Matrix, QuantMatmulDesc};
use backend_api::{BackendError, BackendResult, ComputeBackend, DType, DeviceInfo, Diagnostic, Operation};

#[cfg(not(target_family = "wasm"))]
use crate::cache;
use crate::context::Context;
use crate::device::{self, Gpu, Selector};
use crate::kernels::Variant;
use crate::opened::{Call, Opened};
use crate::ops::OpContext;
use crate::recorder::{Stopwatch, VECTOR_BYTES};
use crate::{context, ops};

/// A compute backend on a WebGPU adapter.
///
/// [`new`](Self::new) and [`select`](Self::select) make one that isn't open yet: each call returns
/// [`NotInitialized`](BackendError::NotInitialized) until [`init`](ComputeBackend::init) has opened an
/// adapter. [`open`](Self::open) does both for the best adapter.
///
/// ```no_run
/// use backend_api::ComputeBackend as _;
/// use backend_webgpu::WebGpuBackend;
///
/// # fn main() -> backend_api::BackendResult<()> {
/// let mut backend = WebGpuBackend::new();
/// assert!(!backend.is_initialized());
/// backend.init()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Default)]
pub struct WebGpuBackend {
    selector: Selector,
    avoid_cooperative_matrices: bool,
    #[cfg(not(target_family = "wasm"))]
    cache_dir: Option<PathBuf>,
    opened: Option<Opened>,
}

impl WebGpuBackend {
    /// A backend for the best adapter, not yet opened.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An open backend on the best adapter. In a browser, where nothing may block, this is
    /// [`WouldBlock`](BackendError::WouldBlock).
    ///
    /// # Errors
    /// [`NoAdapter`](BackendError::NoAdapter).
    pub fn open() -> BackendResult<Self> {
        let mut backend = Self::new();
        backend.init()?;
        Ok(backend)
    }

    /// [`open`](Self::open) that waits without blocking.
    ///
    /// # Errors
    /// [`NoAdapter`](BackendError::NoAdapter).
    pub async fn open_async() -> BackendResult<Self> {
        let mut backend = Self::new();
        backend.init_async().await?;
        Ok(backend)
    }

    /// A backend for the adapter that `selector` names, not yet opened: an index, a part of an interface's or
    /// an adapter's name, or nothing for the best.
    #[must_use]
    pub fn select(selector: &str) -> Self {
        Self { selector: selector.into(), ..Self::default() }
    }

    /// Does without cooperative matrices when the backend is next opened. They are tensor cores of the
    /// device, which wgpu offers as an experimental feature; the backend uses them for f16 products where
    /// there are some, after it has compared their results with the host's.
    #[must_use]
    pub fn without_cooperative_matrices(mut self) -> Self {
        self.avoid_cooperative_matrices = true;
        self
    }

    /// Keeps compiled kernels and what [`tune_matmul`](Self::tune_matmul) found in this folder: they are read
    /// when the backend is next opened, and written by [`save_cache`](Self::save_cache) and when it is dropped.
    /// Without it, the environment variable `COMPUTE_CACHE_DIR` names the folder; without both, nothing is
    /// kept. The folder is made where there is none. It has two files for each adapter, driver and version of
    /// this crate, which several processes may share: each adds its tuning, and of pipelines those of the last
    /// one stay. Files that are missing or damaged are begun anew. Devices given to [`from_wgpu`](Self::from_wgpu)
    /// have no cache.
    ///
    /// What is read goes to the driver as code: nobody who isn't trusted may write there.
    #[cfg(not(target_family = "wasm"))]
    #[must_use]
    pub fn with_cache_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache_dir = Some(folder.into());
        self
    }

    /// Writes what has been compiled and measured since the device was opened into the folder of
    /// [`with_cache_dir`](Self::with_cache_dir). Does nothing where no folder was named, and while the backend
    /// isn't open.
    ///
    /// # Errors
    /// What the file system says, with the file's path.
    #[cfg(not(target_family = "wasm"))]
    pub fn save_cache(&self) -> std::io::Result<()> {
        self.opened.as_ref().map_or(Ok(()), Opened::save_cache)
    }

    /// A backend on a device that the caller has opened. It uses of it what the device's features and limits
    /// allow. The caller must leave the device's uncaptured-error and lost callbacks to the backend. Callbacks of
    /// the caller's own submissions and mappings may be made within any call of the backend, and mustn't call it.
    ///
    /// # Errors
    /// [`OutOfMemory`](BackendError::OutOfMemory); [`Unsupported`](BackendError::Unsupported) where the device was
    /// opened with fewer than 8 storage buffers in a shader, with buffers or bindings of less than 64 KiB, or with lower
    /// limits of workgroups than [`wgpu::Limits::downlevel_defaults`].
    pub fn from_wgpu(
        instance: wgpu::Instance,
        adapter: wgpu::Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
    ) -> BackendResult<Self> {
        if let Some(need) = device::too_low(&device.limits()) {
            return Err(BackendError::Unsupported { op: "from_wgpu", need });
        }
        let info = device::describe(0, &adapter.get_info());
        let gpu = Gpu::new(instance, adapter, device, queue, info);
        Ok(Self { opened: Some(Opened::new(Context::new(gpu)?)), ..Self::default() })
    }

    /// [`init`](ComputeBackend::init) that waits without blocking.
    ///
    /// # Errors
    /// [`NoAdapter`](BackendError::NoAdapter).
    pub async fn init_async(&mut self) -> BackendResult<()> {
        if self.is_initialized() {
            return Ok(());
        }
        self.opened = None;
        let (instance, adapter, info) = device::find(device::enumerate().await, &self.selector)?;
        let span = tracing::info_span!("init", adapter = info.name, api = info.api);
        let gpu = device::open(instance, adapter, info, !self.avoid_cooperative_matrices).await?;
        let context = span.in_scope(|| Context::new(gpu))?;
        #[cfg(not(target_family = "wasm"))]
        let context = context.with_cache(self.cache_dir.clone().or_else(cache::folder_by_environment));
        let opened = Opened::new(context);
        tracing::info!(adapter = opened.device().gpu.info.name, api = opened.device().gpu.info.api, "opened");
        self.opened = Some(opened);
        Ok(())
    }

    /// Whether some adapter can be used.
    #[cfg(not(target_family = "wasm"))]
    #[must_use]
    pub fn is_available() -> bool {
        !pollster::block_on(device::enumerate()).found.is_empty()
    }

    /// The device in use.
    ///
    /// # Errors
    /// [`NotInitialized`](BackendError::NotInitialized), [`DeviceLost`](BackendError::DeviceLost).
    pub fn device_info(&self) -> BackendResult<DeviceInfo> {
        Ok(self.turn("device_info")?.device().gpu.info.clone())
    }

    /// The adapter, if the backend is open.
    #[must_use]
    pub fn adapter(&self) -> Option<&wgpu::Adapter> {
        Some(&self.opened.as_ref()?.device().gpu.adapter)
    }

    /// The wgpu device, if the backend is open, for work of the caller's own beside the backend's.
    #[must_use]
    pub fn device(&self) -> Option<&wgpu::Device> {
        Some(&self.opened.as_ref()?.device().gpu.device)
    }

    /// The wgpu queue, if the backend is open. What the backend has recorded runs before work that is
    /// submitted here only after [`flush`](Self::flush).
    #[must_use]
    pub fn queue(&self) -> Option<&wgpu::Queue> {
        Some(&self.opened.as_ref()?.device().gpu.queue)
    }

    /// Submits what has been recorded, without waiting for the device to do it.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), [`NotInitialized`](BackendError::NotInitialized);
    /// [`Timeout`](BackendError::Timeout) where a driver works off earlier submissions before it takes this
    /// one, which follows then.
    pub fn flush(&self) -> BackendResult<()> {
        let op = "flush";
        let call = self.context(op)?;
        let device = call.device();
        let newest = {
            let mut recorder = device.recorder.lock();
            recorder.submit()?;
            recorder.newest()
        };
        newest.map_or(Ok(()), |newest| device.submitter.wait_until_submitted(&newest, &device.deadline(op)))
    }

    /// The buffer behind a handle, with the handle's byte offset and length in it. The buffer may be read and
    /// written by work submitted after [`flush`](Self::flush), for as long as the handle lives.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle); [`Limit`](BackendError::Limit) for a handle of an allocation
    /// that is larger than a buffer may be, and lies in several.
    pub fn export_buffer(&self, ptr: u64) -> BackendResult<(wgpu::Buffer, u64, u64)> {
        let op = "export_buffer";
        let call = self.context(op)?;
        let slice = call.device().memory.export(op, "ptr", ptr)?;
        call.device().recorder.lock().note_shared(&slice.block);
        Ok((slice.block.buffer().clone(), slice.offset as u64, slice.len as u64))
    }

    /// A handle to a buffer of this device that the caller made, of a multiple of 16 bytes, with the usages STORAGE,
    /// COPY_SRC and COPY_DST. It is freed like any handle; the buffer lives as long as the caller or the backend uses it.
    /// A buffer that is imported again, or was exported, is the memory that it is already known as. While the
    /// handle lives, the caller must not map or destroy the buffer: what is recorded with it would be lost,
    /// and the next read or synchronize says so.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) for another size, if a usage is missing or the buffer is mapped;
    /// [`Driver`](BackendError::Driver) if it is of another device or destroyed. In a browser these two are
    /// told later, by the next read or synchronize. Two things can't be seen here and must not be: a buffer
    /// of another `wgpu::Instance`, and a mapped one of which the caller still holds a view.
    pub fn import_buffer(&self, buffer: wgpu::Buffer) -> BackendResult<u64> {
        let op = "import_buffer";
        let call = self.context(op)?;
        let device = call.device();
        let needed =
            wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let unsupported = |need| Err(BackendError::Unsupported { op, need });
        // Kernels read whole vectors, of the last of which only a part may be an operand's.
        if !buffer.usage().contains(needed) || !buffer.size().is_multiple_of(VECTOR_BYTES) {
            return unsupported(format!(
                "a buffer of whole {VECTOR_BYTES}-byte vectors with the usages {needed:?}"
            ));
        }
        if buffer.get_mapped_range(..).is_ok() {
            return unsupported("a buffer that is not mapped".to_owned());
        }
        device
            .pipelines
            .check_buffer(&buffer)
            .map_err(|error| BackendError::Driver { op, source: Diagnostic::new(error.to_string()) })?;
        device.memory.import(op, buffer)
    }

    /// `C = alpha · A · B + beta · C` for packed row-major f16 matrices, accumulated in f32: A is m×k, B k×n,
    /// C m×n.
    ///
    /// # Errors
    /// As [`gemm`](ComputeBackend::gemm), and [`Unsupported`](BackendError::Unsupported) on a device without
    /// f16.
    #[expect(clippy::too_many_arguments, reason = "the f16 form of the contract's gemm")]
    pub fn gemm_f16(
        &self,
        m: usize,
        n: usize,
        k: usize,
        alpha: f64,
        a_ptr: u64,
        b_ptr: u64,
        beta: f64,
        c_ptr: u64,
    ) -> BackendResult<()> {
        let matrix = |ptr, columns: usize| Matrix::new(ptr, DType::F16, columns.max(1));
        let desc = MatmulDesc::new(m, n, k, matrix(a_ptr, k), matrix(b_ptr, n), matrix(c_ptr, n));
        let desc = desc.with_scale(alpha, beta);
        self.call("gemm_f16", |ctx, op| ops::matmul(ctx, op, &desc))
    }

    /// How a product would be made: the kernel and its tile, the pieces into which k is split, what is copied
    /// first. Such as `cooperative/128x128x32+split4, packs A`. Of a product that takes long, it is that of
    /// the first part, with how many there are: `direct/32x128x4, in 8 parts`.
    ///
    /// # Errors
    /// What [`matmul`](ComputeBackend::matmul) returns.
    pub fn explain_matmul(&self, desc: &MatmulDesc) -> BackendResult<String> {
        ops::explain_matmul(&self.context("explain_matmul")?.context.dry_run(), "explain_matmul", desc)
    }

    /// Makes products use one kernel wherever it can make them, for tests and measurements: one of
    /// [`matmul_kernels`](Self::matmul_kernels), with `+split4` or the like to split k into pieces. `None`
    /// lets the backend choose again.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) if there is no such kernel.
    pub fn force_matmul(&self, kernel: Option<&str>) -> BackendResult<()> {
        let op = "force_matmul";
        let forced = kernel.map(|name| ops::MatmulOverride::parse(op, name)).transpose()?;
        *self.context(op)?.context.state.matmul_override.lock() = forced;
        Ok(())
    }

    /// Every kernel for matrix products, with its tile.
    #[must_use]
    pub fn matmul_kernels() -> Vec<String> {
        ops::MatmulOverride::names()
    }

    /// How a product with a quantised matrix would be made: the kernels that it launches, such as
    /// `quant/quantize_rows, quant/decode` where activations are rounded to 8 bits.
    ///
    /// # Errors
    /// What [`quant_matmul`](ComputeBackend::quant_matmul) returns.
    pub fn explain_quant_matmul(&self, desc: &QuantMatmulDesc) -> BackendResult<String> {
        let op = "explain_quant_matmul";
        ops::explain_quant_matmul(&self.context(op)?.context, op, desc)
    }

    /// [`force_matmul`](Self::force_matmul) for products with quantised matrices: one of
    /// [`quant_matmul_kernels`](Self::quant_matmul_kernels), of which those with `+int8` are for
    /// [`MathMode::Int8`](backend_api::MathMode::Int8). Norms and gates that the kernel doesn't know are operations of
    /// their own.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) if there is no such kernel.
    pub fn force_quant_matmul(&self, kernel: Option<&str>) -> BackendResult<()> {
        let op = "force_quant_matmul";
        let forced = kernel.map(|name| ops::QuantMatmulOverride::parse(op, name)).transpose()?;
        *self.context(op)?.context.state.quant_matmul_override.lock() = forced;
        Ok(())
    }

    /// Every kernel for products with quantised matrices.
    #[must_use]
    pub fn quant_matmul_kernels() -> Vec<String> {
        ops::QuantMatmulOverride::names()
    }

    /// How attention would be computed: the kernel and its tile, the pieces of the keys. Such as
    /// `flash/64x64x64r8, element by element`, or where that takes long, `flash/64x64x64r8, in 8 parts`.
    ///
    /// # Errors
    /// What [`attention_ext`](ComputeBackend::attention_ext) returns.
    pub fn explain_attention(&self, desc: &AttentionDesc) -> BackendResult<String> {
        ops::explain_attention(
            &self.context("explain_attention")?.context.dry_run(),
            "explain_attention",
            desc,
        )
    }

    /// Makes attention use one kernel wherever it can, for tests and measurements: one of
    /// [`attention_kernels`](Self::attention_kernels), with `+split4` or the like for the number of pieces
    /// into which `split` cuts the keys. `None` lets the backend choose again.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) if there is no such kernel.
    pub fn force_attention(&self, kernel: Option<&str>) -> BackendResult<()> {
        let op = "force_attention";
        let forced = kernel.map(|name| ops::AttentionOverride::parse(op, name)).transpose()?;
        *self.context(op)?.context.state.attention_override.lock() = forced;
        Ok(())
    }

    /// Every kernel for attention, with its tile.
    #[must_use]
    pub fn attention_kernels() -> Vec<String> {
        ops::AttentionOverride::names()
    }

    /// How a convolution would be computed: the kernel and its tile, the slices into which its sums are split. Such as
    /// `tiled/64x64x32+split3`, or of single pixels, which are a matrix product, `product, tiled/32x128x8`.
    ///
    /// # Errors
    /// What [`conv2d`](ComputeBackend::conv2d) returns.
    pub fn explain_conv(&self, desc: &ConvDesc) -> BackendResult<String> {
        ops::explain_conv(&self.context("explain_conv")?.context.dry_run(), "explain_conv", desc)
    }

    /// [`force_matmul`](Self::force_matmul) for convolutions, transposed ones and the gradients of inputs:
    /// one of [`conv_kernels`](Self::conv_kernels).
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) if there is no such kernel.
    pub fn force_conv(&self, kernel: Option<&str>) -> BackendResult<()> {
        let op = "force_conv";
        let forced = kernel.map(|name| ops::ConvOverride::parse(op, name)).transpose()?;
        *self.context(op)?.context.state.conv_override.lock() = forced;
        Ok(())
    }

    /// Every kernel for convolutions, with its tile.
    #[must_use]
    pub fn conv_kernels() -> Vec<String> {
        ops::ConvOverride::names()
    }

    /// For tests: takes the device for `slowdown` times slower than its kind is, and has every operation
    /// halved `halvings` times where it can be divided.
    ///
    /// # Errors
    /// [`NotInitialized`](BackendError::NotInitialized).
    #[cfg(any(test, feature = "test-hooks"))]
    pub fn pretend(&self, slowdown: f64, halvings: u32) -> BackendResult<()> {
        self.context("pretend")?.context.state.pace.pretend(slowdown, halvings);
        Ok(())
    }

    /// For tests: after `after` more attempts to allocate, of operations' own memory too, the next `count` are
    /// refused as if the device had no memory. Each allocation attempts it a few times.
    ///
    /// # Errors
    /// [`NotInitialized`](BackendError::NotInitialized).
    #[cfg(any(test, feature = "test-hooks"))]
    pub fn refuse_allocations(&self, after: usize, count: usize) -> BackendResult<()> {
        self.context("refuse_allocations")?.device().memory.pool().refuse(after, count);
        Ok(())
    }

    /// For tests: how often recorded work was submitted because more would have been too long.
    #[cfg(any(test, feature = "test-hooks"))]
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.opened.as_ref().map_or(0, |opened| opened.state().pace.cuts())
    }

    /// How long a call waits for the device before it returns [`Timeout`](BackendError::Timeout); two minutes
    /// unless set.
    ///
    /// # Errors
    /// [`NotInitialized`](BackendError::NotInitialized).
    pub fn set_timeout(&self, timeout: Duration) -> BackendResult<()> {
        self.context("set_timeout")?.device().set_timeout(timeout);
        Ok(())
    }

    /// How long a call that waits polls the device before it lets its thread sleep; 200 µs unless set.
    /// Polling keeps a core busy and saves the time of waking the thread, as the spin and blocking-sync flags
    /// of a CUDA device do. An asynchronous call that has waited so long sleeps up to half a millisecond between
    /// its polls, and its executor's thread with it. Without effect in a browser, which never blocks, and on
    /// Vulkan's software adapters, to which a thread of the backend submits and tells when a batch has finished.
    ///
    /// # Errors
    /// [`NotInitialized`](BackendError::NotInitialized).
    pub fn set_spin(&self, time: Duration) -> BackendResult<()> {
        self.context("set_spin")?.device().submitter.set_spin(time);
        Ok(())
    }

    /// The device time of what `work` calls, without the host's. Blocks until it has finished.
    ///
    /// # Errors
    /// What `work` returns; [`Unsupported`](BackendError::Unsupported) on a device without timestamp queries.
    pub fn time(&self, work: impl FnOnce(&Self) -> BackendResult<()>) -> BackendResult<Duration> {
        let op = "time";
        let call = self.context(op)?;
        let device = call.device();
        if cfg!(target_family = "wasm") {
            return Err(BackendError::WouldBlock { op });
        }
        if !device.gpu.device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return Err(BackendError::Unsupported { op, need: "a device with TIMESTAMP_QUERY".to_owned() });
        }
        let stopwatch = Stopwatch::new(&device.gpu.device, &device.gpu.queue);
        device.recorder.lock().encode(|encoder| stopwatch.start(encoder));
        work(self)?;
        let mut buffer = None;
        device.recorder.lock().encode(|encoder| buffer = Some(stopwatch.stop(encoder).clone()));
        let mut bytes = [0; Stopwatch::BYTES];
        if let Some(buffer) = buffer {
            context::read_buffer(device, op, &buffer, &mut bytes)?;
        }
        Ok(stopwatch.elapsed(bytes))
    }

    /// Kernels compiled so far. Bounded by the kinds of operation in use, not by their shapes.
    #[must_use]
    pub fn compiled_kernels(&self) -> usize {
        self.opened.as_ref().map_or(0, |opened| opened.device().pipelines.len())
    }

    /// Cached bind groups; bounded.
    #[must_use]
    pub fn cached_bind_groups(&self) -> usize {
        self.opened.as_ref().map_or(0, |opened| opened.device().recorder.lock().cache_sizes().0)
    }

    /// Plans the operations in a dry run and compiles the kernels that they ask for side by side.
    pub(crate) async fn warm_up(&self, operations: &[Operation<'_>]) -> BackendResult<()> {
        let op = "warm_up_async";
        let opened = self.context_async(op)?;
        // Planning tests each variant on tensor cores, and the test compiles it, one after the other. So what plans
        // ask for if all tests are passed is compiled beforehand.
        if opened.device().gpu.cooperative_matrices {
            let planner = Self::over(opened.untested_dry_run());
            for operation in operations {
                // An error comes again below.
                _ = operation(&planner);
            }
            let context = planner.context(op)?.context;
            let mut variants = context.take_untested();
            if !variants.is_empty() {
                variants.extend(context.take_variants());
                // What doesn't compile fails its test.
                _ = compile(opened.device(), &variants.into_iter().collect::<Vec<_>>()).await;
            }
        }
        let planner = Self::over(opened.dry_run());
        let mut variants = HashSet::new();
        for operation in operations {
            operation(&planner)?;
            variants.extend(planner.context(op)?.context.take_variants());
        }
        compile(opened.device(), &variants.into_iter().collect::<Vec<_>>()).await
    }

    /// A backend on a device that is open.
    pub(crate) fn over(opened: Opened) -> Self {
        Self { opened: Some(opened), ..Self::default() }
    }

    /// Opens the device, replacing a lost one.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn open_device(&mut self) -> BackendResult<()> {
        pollster::block_on(self.init_async())
    }

    /// Opening a device in a browser can't block.
    #[cfg(target_family = "wasm")]
    pub(crate) fn open_device(&mut self) -> BackendResult<()> {
        if self.is_initialized() { Ok(()) } else { Err(BackendError::WouldBlock { op: "init" }) }
    }

    /// Runs an operation and records what it launches, if it succeeds.
    pub(crate) fn call<T>(
        &self,
        op: &'static str,
        operation: impl FnOnce(&OpContext, &'static str) -> BackendResult<T>,
    ) -> BackendResult<T> {
        let call = self.turn(op)?;
        let value = operation(&call.context, op).inspect_err(|_| call.context.discard())?;
        call.context.commit(op)?;
        Ok(value)
    }

    /// The opened device, if it still works, for the time of a call that can't be captured.
    pub(crate) fn context(&self, op: &'static str) -> BackendResult<Call<'_>> {
        let call = self.turn(op)?;
        call.context.require_no_capture(op)?;
        Ok(call)
    }

    /// The opened device, if it still works, for the time of an operation or a question.
    pub(crate) fn turn(&self, op: &'static str) -> BackendResult<Call<'_>> {
        self.opened.as_ref().ok_or(BackendError::NotInitialized { op })?.call(op)
    }

    /// The opened device, if it still works, for a call that waits without blocking, and takes its turn
    /// whenever it goes on.
    pub(crate) fn context_async(&self, op: &'static str) -> BackendResult<&Opened> {
        self.context(op)?;
        self.opened.as_ref().ok_or(BackendError::NotInitialized { op })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.turn("is_initialized").is_ok()
    }

    /// Memory can be asked for even when there is none.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        self.opened.as_ref()
    }
}

/// Compiles kernels by as many threads as the host has, as drivers compile each on its caller's.
#[cfg(not(any(target_family = "wasm", feature = "shuttle")))]
async fn compile(device: &Context, variants: &[Variant]) -> BackendResult<()> {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(variants.len());
    if threads <= 1 {
        return compile_in_turn(device, variants).await;
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(variant) = variants.get(next.fetch_add(1, Ordering::Relaxed)) {
            pollster::block_on(compile_in_turn(device, std::slice::from_ref(variant)))?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| std::thread::Builder::new().spawn_scoped(scope, work)).collect();
        // A thread that the system refuses leaves its part to this one.
        let own = if workers.iter().any(Result::is_err) { work() } else { Ok(()) };
        let ended = workers
            .into_iter()
            .flatten()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.fold(own, Result::and)
    })
}

/// Compiles kernels one after the other.
#[cfg(any(target_family = "wasm", feature = "shuttle"))]
async fn compile(device: &Context, variants: &[Variant]) -> BackendResult<()> {
    compile_in_turn(device, variants).await
}

async fn compile_in_turn(device: &Context, variants: &[Variant]) -> BackendResult<()> {
    for variant in variants {
        device.compile(variant).await?;
        device.gpu.health.check()?;
    }
    Ok(())
}
