//! `WebGpuBackend`: opening it, and what it has beyond the contract.

#[cfg(not(target_family = "wasm"))]
use std::path::PathBuf;
use std::time::Duration;

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{BackendError, BackendResult, ComputeBackend, DType, DeviceInfo};

#[cfg(not(target_family = "wasm"))]
use crate::cache;
use crate::context::Context;
use crate::device::{self, Gpu, GuardedDevice, LastHandle, Selector};
use crate::opened::{Call, Opened};
use crate::ops::OpContext;
use crate::recorder::Stopwatch;
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
    /// Whether the caller has opened the device.
    is_of_caller: bool,
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
    /// allow. The caller must leave the device's uncaptured-error and lost callbacks to the backend. wgpu keeps memory
    /// for each thread that the backend has caught errors on, as long as the device lives. Callbacks of the caller's
    /// own submissions and mappings may be made within any call of the backend or by a thread of its own, and mustn't call
    /// it, drop it or panic. Once the device is lost, [`init`](ComputeBackend::init) is `Unsupported`: the caller opens another
    /// one. The selector of its [`DeviceInfo`] is "webgpu", which may select another adapter.
    ///
    /// # Errors
    /// [`OutOfMemory`](BackendError::OutOfMemory); [`Unsupported`](BackendError::Unsupported), which names the limit, where
    /// the device was opened with fewer than 8 storage buffers and a uniform buffer in a shader, with buffers or bindings of
    /// less than 64 KiB, with alignments of more than 256 bytes, or with lower limits of workgroups than
    /// [`wgpu::Limits::defaults`]; `Unsupported` for the queue of another device, which is asked of the device once what the
    /// caller has submitted is done.
    pub fn from_wgpu(
        instance: wgpu::Instance,
        adapter: wgpu::Adapter,
        device: wgpu::Device,
        queue: wgpu::Queue,
    ) -> BackendResult<Self> {
        let missing = device::too_low(&device.limits());
        #[cfg(not(target_family = "wasm"))]
        let missing = missing.or_else(|| {
            let is_foreign = !device::may_be_of(&device, &queue, Context::DEFAULT_TIMEOUT);
            is_foreign.then(|| "the queue of the device".to_owned())
        });
        if let Some(need) = missing {
            // The caller may have no other handles.
            let last = LastHandle::new(&device);
            #[cfg(not(target_family = "wasm"))]
            last.set_patience(Context::DEFAULT_TIMEOUT);
            drop((instance, adapter, device, queue));
            drop(last);
            return Err(BackendError::Unsupported { op: "from_wgpu", need });
        }
        let info = DeviceInfo { selector: "webgpu".to_owned(), ..device::describe(0, &adapter.get_info()) };
        let gpu = Gpu::new(instance, adapter, GuardedDevice::of_caller(device), queue, info);
        Ok(Self { opened: Some(Opened::new(Context::new(gpu)?)), is_of_caller: true, ..Self::default() })
    }

    /// [`init`](ComputeBackend::init) that waits without blocking.
    ///
    /// # Errors
    /// [`NoAdapter`](BackendError::NoAdapter); [`Unsupported`](BackendError::Unsupported) after the loss of a device that
    /// was given to [`from_wgpu`](Self::from_wgpu).
    pub async fn init_async(&mut self) -> BackendResult<()> {
        if self.is_initialized() {
            return Ok(());
        }
        self.init_within(|_| {}).await
    }

    /// Opens the device anew, with the adapter's limits as `lower` changes them.
    pub(crate) async fn init_within(&mut self, lower: impl FnOnce(&mut wgpu::Limits)) -> BackendResult<()> {
        if self.is_of_caller {
            let need = "a device that the backend opens itself; one that was given to from_wgpu is its caller's to open";
            return Err(BackendError::Unsupported { op: "init", need: need.to_owned() });
        }
        self.opened = None;
        let (instance, adapter, info) = device::find(device::enumerate().await, &self.selector)?;
        let span = tracing::info_span!("init", adapter = info.name, api = info.api);
        let mut limits = adapter.limits();
        lower(&mut limits);
        let gpu = device::open(instance, adapter, info, limits, !self.avoid_cooperative_matrices).await?;
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
        Ok(self.begin("device_info")?.device().gpu.info.clone())
    }

    /// The adapter, if the backend is open.
    #[must_use]
    pub fn adapter(&self) -> Option<&wgpu::Adapter> {
        Some(&self.opened.as_ref()?.device().gpu.adapter)
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

    /// How long a blocking call waits for the device before it returns [`Timeout`](BackendError::Timeout); two minutes
    /// unless set, and again after a loss and [`init`](ComputeBackend::init). Futures wait until they are ready or
    /// dropped.
    ///
    /// # Errors
    /// [`NotInitialized`](BackendError::NotInitialized).
    pub fn set_timeout(&self, timeout: Duration) -> BackendResult<()> {
        self.context("set_timeout")?.device().set_timeout(timeout);
        Ok(())
    }

    /// How long a call that waits polls the device before it lets its thread sleep; unless set, 20 ms for a GPU on a host
    /// of four cores and more, and 200 µs elsewhere.
    /// Polling keeps a core busy and saves the time of waking the thread, as the spin and blocking-sync flags
    /// of a CUDA device do. An asynchronous call polls so for 200 µs at most; then it sleeps up to half a
    /// millisecond between its polls, and its executor's thread with it. Without effect in a browser, which never blocks, and on
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
        let call = self.begin(op)?;
        let value = operation(&call.context, op).inspect_err(|_| call.context.discard())?;
        call.context.commit(op)?;
        Ok(value)
    }

    /// The opened device, if it still works, for the time of a call that can't be captured.
    pub(crate) fn context(&self, op: &'static str) -> BackendResult<Call<'_>> {
        let call = self.begin(op)?;
        call.context.require_no_capture(op)?;
        Ok(call)
    }

    /// The opened device, if it still works, for the time of an operation or a question.
    pub(crate) fn begin(&self, op: &'static str) -> BackendResult<Call<'_>> {
        self.opened.as_ref().ok_or(BackendError::NotInitialized { op })?.call(op)
    }

    /// The opened device, if it still works, for a call that waits without blocking, and locks OpenGL whenever it goes
    /// on.
    pub(crate) fn context_async(&self, op: &'static str) -> BackendResult<&Opened> {
        self.context(op)?;
        self.opened.as_ref().ok_or(BackendError::NotInitialized { op })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opened.as_ref().is_some_and(Opened::is_working)
    }

    /// For tests of what belongs to a device, which is open.
    #[cfg(test)]
    pub(crate) fn guarded_device(&self) -> &GuardedDevice {
        &self.opened().expect("an open backend").device().gpu.device
    }

    /// Memory can be asked for even when there is none.
    pub(crate) fn opened(&self) -> Option<&Opened> {
        self.opened.as_ref()
    }
}
