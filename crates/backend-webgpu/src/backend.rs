//! `WebGpuBackend`: opening it, and what it has beyond the contract.

use std::time::Duration;

use backend_api::desc::{AttentionDesc, MatmulDesc, Matrix};
use backend_api::{BackendError, BackendResult, ComputeBackend, DType, DeviceInfo, Operation};

use crate::context::Context;
use crate::device::{self, Entered, Gpu, Selector};
use crate::recorder::Stopwatch;
use crate::{ops, transfer};

/// A compute backend on a WebGPU adapter.
///
/// Made with [`new`](Self::new), or with `default()` or [`select`](Self::select) and a later
/// [`init`](ComputeBackend::init).
#[derive(Debug, Default)]
pub struct WebGpuBackend {
    selector: Selector,
    avoid_cooperative_matrices: bool,
    context: Option<Context>,
}

impl WebGpuBackend {
    /// Opens the best adapter.
    ///
    /// # Errors
    /// [`NoAdapter`](BackendError::NoAdapter).
    pub fn new() -> BackendResult<Self> {
        let mut backend = Self::default();
        backend.init()?;
        Ok(backend)
    }

    /// A backend for the adapter that `selector` names, not yet opened: an index, a part of an interface's or an
    /// adapter's name, or nothing for the best.
    #[must_use]
    pub fn select(selector: &str) -> Self {
        Self { selector: selector.into(), ..Self::default() }
    }

    /// The same backend, doing without cooperative matrices when it is next opened. They are matrix units of the
    /// device, which wgpu offers as an experimental feature; the backend uses them for f16 products where there are
    /// some, after it has compared their results with the host's.
    #[must_use]
    pub fn without_cooperative_matrices(mut self) -> Self {
        self.avoid_cooperative_matrices = true;
        self
    }

    /// A backend on a device that the caller has opened. It uses of it what the device's features and limits allow.
    /// The caller must leave the device's uncaptured-error and lost callbacks to the backend.
    ///
    /// # Errors
    /// [`OutOfMemory`](BackendError::OutOfMemory).
    pub fn from_wgpu(
        instance: wgpu::Instance,
        adapter: wgpu::Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
    ) -> BackendResult<Self> {
        let info = device::describe(0, &adapter.get_info());
        let gpu = Gpu::new(instance, adapter, device, queue, info);
        Ok(Self { context: Some(Context::new(gpu)?), ..Self::default() })
    }

    /// [`init`](ComputeBackend::init) that waits without blocking.
    ///
    /// # Errors
    /// [`NoAdapter`](BackendError::NoAdapter).
    pub async fn init_async(&mut self) -> BackendResult<()> {
        if self.is_initialized() {
            return Ok(());
        }
        self.context = None;
        let (instance, adapter, info) = device::find(device::enumerate().await, &self.selector)?;
        let span = tracing::info_span!("init", adapter = info.name, api = info.api);
        let gpu = device::open(instance, adapter, info, !self.avoid_cooperative_matrices).await?;
        let context = span.in_scope(|| Context::new(gpu))?;
        tracing::info!(adapter = context.gpu.info.name, api = context.gpu.info.api, "opened");
        self.context = Some(context);
        Ok(())
    }

    /// Whether some adapter can be used.
    #[cfg(not(target_family = "wasm"))]
    #[must_use]
    pub fn is_available() -> bool {
        !pollster::block_on(device::enumerate()).found.is_empty()
    }

    /// The device in use, if the backend is open.
    #[must_use]
    pub fn device_info(&self) -> Option<&DeviceInfo> {
        Some(&self.context.as_ref()?.gpu.info)
    }

    /// The adapter, if the backend is open.
    #[must_use]
    pub fn adapter(&self) -> Option<&wgpu::Adapter> {
        Some(&self.context.as_ref()?.gpu.adapter)
    }

    /// The wgpu device, if the backend is open, for work of the caller's own beside the backend's.
    #[must_use]
    pub fn device(&self) -> Option<&wgpu::Device> {
        Some(&self.context.as_ref()?.gpu.device)
    }

    /// The wgpu queue, if the backend is open. What the backend has recorded runs before work that is submitted here
    /// only after [`flush`](Self::flush).
    #[must_use]
    pub fn queue(&self) -> Option<&wgpu::Queue> {
        Some(&self.context.as_ref()?.gpu.queue)
    }

    /// Submits what has been recorded, without waiting for it.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), [`NotInitialized`](BackendError::NotInitialized).
    pub fn flush(&self) -> BackendResult<()> {
        self.context("flush")?.recorder.lock().submit("flush")
    }

    /// The buffer behind a handle, with the handle's byte offset and length in it. The buffer may be read and written
    /// by work submitted after [`flush`](Self::flush), for as long as the handle lives.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle).
    pub fn export_buffer(&self, ptr: u64) -> BackendResult<(wgpu::Buffer, u64, u64)> {
        let slice = self.context("export_buffer")?.memory.lookup("export_buffer", "ptr", ptr)?;
        Ok((slice.block.buffer().clone(), slice.offset as u64, slice.len as u64))
    }

    /// A handle to a buffer of this device that the caller made, with the usages STORAGE, COPY_SRC and COPY_DST. It
    /// is freed like any handle; the buffer lives as long as the caller or the backend uses it.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) if a usage is missing.
    pub fn import_buffer(&self, buffer: wgpu::Buffer) -> BackendResult<u64> {
        let op = "import_buffer";
        let context = self.context(op)?;
        let needed =
            wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        if !buffer.usage().contains(needed) || !buffer.size().is_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT) {
            let need = format!("a buffer of whole words with the usages {needed:?}");
            return Err(BackendError::Unsupported { op, need });
        }
        context.memory.import(op, buffer)
    }

    /// `C = alpha · A · B + beta · C` for packed row-major f16 matrices, accumulated in f32: A is m×k, B k×n, C m×n.
    ///
    /// # Errors
    /// As [`gemm`](ComputeBackend::gemm), and [`Unsupported`](BackendError::Unsupported) on a device without f16.
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
        ops::matmul(&*self.context("gemm_f16")?, "gemm_f16", &desc.with_scale(alpha, beta))
    }

    /// How a product would be made: the kernel and its tile, the pieces into which k is split, what is copied first.
    /// Such as `cooperative/128x128x32+split4, packs A`.
    ///
    /// # Errors
    /// Those of [`matmul`](ComputeBackend::matmul).
    pub fn explain_matmul(&self, desc: &MatmulDesc) -> BackendResult<String> {
        ops::explain_matmul(&*self.context("explain_matmul")?, "explain_matmul", desc)
    }

    /// Makes products use one kernel wherever it can make them, for tests and measurements: one of
    /// [`matmul_kernels`](Self::matmul_kernels), with `+split4` or the like to split k into pieces. `None` lets the
    /// backend choose again.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) if there is no such kernel.
    pub fn force_matmul(&self, kernel: Option<&str>) -> BackendResult<()> {
        let op = "force_matmul";
        let forced = kernel.map(|name| ops::ForcedMatmul::parse(op, name)).transpose()?;
        *self.context(op)?.forced_matmul.lock() = forced;
        Ok(())
    }

    /// Every kernel for matrix products, with its tile.
    #[must_use]
    pub fn matmul_kernels() -> Vec<String> {
        ops::ForcedMatmul::names()
    }

    /// How attention would be computed: the kernel and its tile, the pieces of the keys. Such as
    /// `flash/64x64x64r8, element by element`.
    ///
    /// # Errors
    /// Those of [`attention_ext`](ComputeBackend::attention_ext).
    pub fn explain_attention(&self, desc: &AttentionDesc) -> BackendResult<String> {
        ops::explain_attention(&*self.context("explain_attention")?, "explain_attention", desc)
    }

    /// Makes attention use one kernel wherever it can, for tests and measurements: one of
    /// [`attention_kernels`](Self::attention_kernels), with `+split4` or the like for the number of pieces into which
    /// `split` cuts the keys. `None` lets the backend choose again.
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) if there is no such kernel.
    pub fn force_attention(&self, kernel: Option<&str>) -> BackendResult<()> {
        let op = "force_attention";
        let forced = kernel.map(|name| ops::ForcedAttention::parse(op, name)).transpose()?;
        *self.context(op)?.forced_attention.lock() = forced;
        Ok(())
    }

    /// Every kernel for attention, with its tile.
    #[must_use]
    pub fn attention_kernels() -> Vec<String> {
        ops::ForcedAttention::names()
    }

    /// [`force_matmul`](Self::force_matmul) for convolutions, transposed ones and the gradients of inputs: one of
    /// [`conv_kernels`](Self::conv_kernels).
    ///
    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) if there is no such kernel.
    pub fn force_conv(&self, kernel: Option<&str>) -> BackendResult<()> {
        let op = "force_conv";
        let forced = kernel.map(|name| ops::ForcedConv::parse(op, name)).transpose()?;
        *self.context(op)?.forced_conv.lock() = forced;
        Ok(())
    }

    /// Every kernel for convolutions, with its tile.
    #[must_use]
    pub fn conv_kernels() -> Vec<String> {
        ops::ForcedConv::names()
    }

    /// How long a call waits for the device before it returns [`Timeout`](BackendError::Timeout); two minutes unless
    /// set.
    ///
    /// # Errors
    /// [`NotInitialized`](BackendError::NotInitialized).
    pub fn set_timeout(&self, timeout: Duration) -> BackendResult<()> {
        self.context("set_timeout")?.set_timeout(timeout);
        Ok(())
    }

    /// The device time of what `work` calls, without the host's. Blocks until it has finished.
    ///
    /// # Errors
    /// What `work` returns; [`Unsupported`](BackendError::Unsupported) on a device without timestamp queries.
    pub fn time(&self, work: impl FnOnce(&Self) -> BackendResult<()>) -> BackendResult<Duration> {
        let op = "time";
        let context = self.context(op)?;
        if cfg!(target_family = "wasm") {
            return Err(BackendError::WouldBlock { op });
        }
        if !context.gpu.device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return Err(BackendError::Unsupported { op, need: "a device with TIMESTAMP_QUERY".to_owned() });
        }
        let stopwatch = Stopwatch::new(&context.gpu.device, &context.gpu.queue);
        context.recorder.lock().encode(|encoder| stopwatch.start(encoder));
        work(self)?;
        let mut buffer = None;
        context.recorder.lock().encode(|encoder| buffer = Some(stopwatch.stop(encoder).clone()));
        let mut bytes = [0; Stopwatch::BYTES];
        if let Some(buffer) = buffer {
            transfer::read_buffer(&context, op, &buffer, &mut bytes)?;
        }
        Ok(stopwatch.elapsed(bytes))
    }

    /// Kernels compiled so far. Bounded by the kinds of operation in use, not by their shapes.
    #[must_use]
    pub fn compiled_kernels(&self) -> usize {
        self.context.as_ref().map_or(0, |context| context.pipelines.len())
    }

    /// Cached bind groups; bounded.
    #[must_use]
    pub fn cached_bind_groups(&self) -> usize {
        self.context.as_ref().map_or(0, |context| context.recorder.lock().cache_sizes().0)
    }

    /// Rehearses each operation and compiles the kernels that it asks for.
    pub(crate) async fn warm_up(&self, operations: &[Operation<'_>]) -> BackendResult<()> {
        let op = "warm_up_async";
        let context = self.context_async(op)?;
        let rehearsal = Self { context: Some(context.rehearsal()), ..Self::default() };
        for operation in operations {
            operation(&rehearsal)?;
            for variant in rehearsal.context_async(op)?.take_rehearsed() {
                context.compile(&variant).await?;
                context.gpu.health.check()?;
            }
        }
        Ok(())
    }

    /// Opens the device, replacing a lost one.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn open(&mut self) -> BackendResult<()> {
        pollster::block_on(self.init_async())
    }

    /// Opening a device in a browser can't block.
    #[cfg(target_family = "wasm")]
    pub(crate) fn open(&mut self) -> BackendResult<()> {
        if self.is_initialized() { Ok(()) } else { Err(BackendError::WouldBlock { op: "init" }) }
    }

    /// The opened device, if it still works, for the time of a call.
    pub(crate) fn context(&self, op: &'static str) -> BackendResult<Entered<'_>> {
        let context = Entered::new(self.context.as_ref().ok_or(BackendError::NotInitialized { op })?);
        context.gpu.health.refresh(&context.gpu.device)?;
        Ok(context)
    }

    /// The same for a call that waits without blocking, and takes its turn whenever it goes on.
    pub(crate) fn context_async(&self, op: &'static str) -> BackendResult<&Context> {
        self.context(op)?;
        self.context.as_ref().ok_or(BackendError::NotInitialized { op })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.context("is_initialized").is_ok()
    }

    /// Memory can be asked for even when there is none.
    pub(crate) fn context_or_none(&self) -> Option<&Context> {
        self.context.as_ref()
    }
}
