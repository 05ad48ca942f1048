//! What an opened backend consists of, and what operations ask of it.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use backend_api::operand::Operand;
use backend_api::{BackendError, BackendResult, DType, DeviceKind, MemoryStats};
use bytemuck::Pod;

use crate::device::{GlLock, Gpu, LastHandle, Witness, guarded};
use crate::kernels::{MAX_IMMEDIATES, MAX_PARAMS, Pipelines, Target, Variant};
use crate::memory::{Allocation, Block, DeviceSlice, Memory};
use crate::ops;
pub(crate) use crate::recorder::MAX_GROUPS;
use crate::recorder::{
    BindingLimits, Command, Deadline, MAX_BINDINGS, Progress, Recorder, Submitter, Then, Window,
};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, thread};
use crate::transfer::{Readback, Signal, StagingRing};

/// An opened device, as the operations of one call see it.
///
/// A call's dispatches are collected here, and recorded together when all of it has been checked and planned:
/// a call that fails has recorded none, and no other thread's come in between.
#[derive(Debug)]
pub(crate) struct Context {
    parts: Arc<Parts>,
    mode: Mode,
}

/// What becomes of a dispatch.
#[derive(Debug)]
enum Mode {
    /// It is recorded when the call is over.
    Record(Mutex<Vec<Command>>),
    /// A dry run only notes which kernel was asked for.
    DryRun(Arc<Mutex<Vec<Variant>>>),
}

/// Everything that belongs to an opened device.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) gpu: Gpu,
    pub(crate) memory: Memory,
    pub(crate) pipelines: Pipelines,
    pub(crate) recorder: Mutex<Recorder>,
    pub(crate) submitter: Arc<Submitter>,
    pub(crate) readback: Readback,
    pub(crate) gl_lock: GlLock,
    /// Which variants on cooperative matrices were found to be right.
    pub(crate) self_tests: ops::SelfTests,
    /// Which kernels were measured to be the fastest.
    pub(crate) tuning: ops::Tuning,
    /// The kernel that matrix products have to use, if one was asked for.
    pub(crate) matmul_override: Mutex<Option<ops::MatmulOverride>>,
    /// The kernel that attention has to use, if one was asked for.
    pub(crate) attention_override: Mutex<Option<ops::AttentionOverride>>,
    /// The kernel that convolutions have to use, if one was asked for.
    pub(crate) conv_override: Mutex<Option<ops::ConvOverride>>,
    /// How much long work is waiting to be submitted.
    pub(crate) pace: ops::Pace,
    limits: BindingLimits,
    timeout_ms: AtomicU64,
    /// Bound where an operation leaves out an operand.
    null: Arc<Block>,
    /// Bound where an operation leaves out an output.
    sink: Arc<Block>,
    /// Below all else that has a handle of the device, as fields are dropped in their order.
    _last: LastHandle,
}

impl Deref for Context {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Parts {
    /// The longest wait for the device before a call gives up.
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

    pub(crate) fn new(gpu: Gpu) -> BackendResult<Self> {
        let (device, limits) = (&gpu.device, &gpu.limits);
        let immediates = gpu.device.features().contains(wgpu::Features::IMMEDIATES);
        let is_software = gpu.info.kind == DeviceKind::SoftwareAdapter;
        let target = Target {
            immediates: immediates && limits.max_immediate_size >= MAX_IMMEDIATES,
            unroll: !is_software,
        };
        let has_dropped = Arc::new(AtomicBool::new(false));
        let progress = Arc::new(Progress::default());
        let gl_lock = GlLock::new(&gpu.info);
        // An OpenGL context belongs to the thread whose turn it is.
        let has_thread = is_software && !gl_lock.is_needed();
        let submitter = Arc::new(Submitter::new(device, &gpu.queue, &gpu.health, &progress, has_thread));
        let memory = Memory::new(device, &progress, &has_dropped);
        let pipelines = Pipelines::new(device, target, gpu.takes_spirv);
        let recorder = Recorder::new(device, &submitter, target, pipelines.params_layout(), &has_dropped);
        Ok(Self {
            _last: LastHandle::new(device),
            null: Arc::new(Block::foreign(null_buffer(device)?)),
            sink: Arc::new(Block::foreign(null_buffer(device)?)),
            memory,
            recorder: Mutex::new(recorder),
            submitter,
            readback: Readback::new(device),
            gl_lock,
            self_tests: ops::SelfTests::default(),
            tuning: ops::Tuning::default(),
            matmul_override: Mutex::default(),
            attention_override: Mutex::default(),
            conv_override: Mutex::default(),
            pace: ops::Pace::default(),
            limits: BindingLimits::of(limits),
            timeout_ms: AtomicU64::new(Self::DEFAULT_TIMEOUT.as_millis() as u64),
            pipelines,
            gpu,
        })
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// From now on, how long a call may wait.
    pub(crate) fn deadline(&self, op: &'static str) -> Deadline {
        Deadline::new(op, self.timeout())
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        let mut stats = self.memory.stats();
        stats.staging = self.readback.bytes() + self.recorder.lock().cache_sizes().1;
        stats
    }

    /// Gives everything back to the system that is only kept for reuse; how many bytes. What the device still
    /// works on comes back when it has finished.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn trim(&self) -> BackendResult<usize> {
        let bytes = self.memory.pool().trim();
        self.readback.trim();
        let mut recorder = self.recorder.lock();
        // The open batch keeps the buffers that it uses.
        recorder.submit()?;
        recorder.forget_bind_groups();
        drop(recorder);
        self.submitter.poll();
        Ok(bytes)
    }
}

impl Context {
    /// How often an allocation waits for memory to come back: meanwhile other threads may free some, and
    /// their batches keep it for a while.
    const MAX_RECLAIMS: usize = 4;

    /// A call that records.
    pub(crate) fn new(parts: Arc<Parts>) -> Self {
        Self { parts, mode: Mode::Record(Mutex::default()) }
    }

    /// On this device, a context in which operations are checked and planned but launch nothing.
    pub(crate) fn dry_run(&self) -> Self {
        Self { parts: Arc::clone(&self.parts), mode: Mode::DryRun(Arc::default()) }
    }

    /// The context of the next call.
    pub(crate) fn call(&self) -> Self {
        let mode = match &self.mode {
            Mode::Record(_) => Mode::Record(Mutex::default()),
            Mode::DryRun(variants) => Mode::DryRun(Arc::clone(variants)),
        };
        Self { parts: Arc::clone(&self.parts), mode }
    }

    /// The kernels that dry runs asked for since the last call.
    pub(crate) fn take_variants(&self) -> Vec<Variant> {
        match &self.mode {
            Mode::Record(_) => Vec::new(),
            Mode::DryRun(variants) => std::mem::take(&mut *variants.lock()),
        }
    }

    /// Everything of the device, for those that outlive calls.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn parts(&self) -> &Arc<Parts> {
        &self.parts
    }

    /// Records what was launched since the last commit, all of it or nothing.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout), [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn commit(&self, op: &'static str) -> BackendResult<()> {
        let Mode::Record(commands) = &self.mode else { return Ok(()) };
        let commands = std::mem::take(&mut *commands.lock());
        if commands.is_empty() {
            return Ok(());
        }
        let mut deadline = None;
        loop {
            let mut recorder = self.recorder.lock();
            let Some(busy) = recorder.admit(commands.len())? else {
                return recorder.record(&commands);
            };
            drop(recorder);
            let deadline = deadline.get_or_insert_with(|| self.deadline(op));
            self.submitter.wait(&busy, deadline)?;
        }
    }

    /// Compiles a kernel and lets other tasks go on. Nobody has to wait for a turn at the device meanwhile:
    /// the gate is entered for the compilation alone.
    pub(crate) async fn compile(&self, variant: &Variant) -> BackendResult<()> {
        self.pipelines.compile_async(variant, &self.gl_lock).await
    }

    /// Memory of at least so many bytes; its content is arbitrary.
    ///
    /// # Errors
    /// [`Limit`](BackendError::Limit), [`OutOfMemory`](BackendError::OutOfMemory).
    pub(crate) fn allocate(&self, op: &'static str, bytes: usize) -> BackendResult<Arc<Block>> {
        let pool = self.memory.pool();
        let (mut reclaims, mut deadline) = (0, None);
        loop {
            match pool.alloc(op, bytes)? {
                Allocation::Done(block) => return Ok(block),
                Allocation::NeedsReclaim(error) if reclaims == Self::MAX_RECLAIMS => return Err(error),
                Allocation::NeedsReclaim(_) => {
                    self.reclaim(deadline.get_or_insert_with(|| self.deadline(op)))?;
                }
            }
            reclaims += 1;
        }
    }

    /// Memory that a handle names.
    pub(crate) fn alloc(&self, op: &'static str, bytes: usize) -> BackendResult<u64> {
        self.memory.insert(op, self.allocate(op, bytes)?, bytes)
    }

    /// Memory for one operation's own use, given back when the slice is dropped.
    pub(crate) fn scratch(&self, op: &'static str, bytes: usize) -> BackendResult<DeviceSlice> {
        Ok(DeviceSlice { block: self.allocate(op, bytes)?, offset: 0, len: bytes })
    }

    /// Waits for what the device works on, within the time that a call may wait, and gives back what nobody
    /// uses any more.
    fn reclaim(&self, deadline: &Deadline) -> BackendResult<()> {
        self.trim()?;
        let newest = self.recorder.lock().newest();
        if let (Some(newest), false) = (newest, cfg!(target_family = "wasm")) {
            match self.submitter.wait(&newest, deadline) {
                // There may be room by now all the same.
                Ok(()) | Err(BackendError::Timeout { .. }) => {}
                Err(lost) => return Err(lost),
            }
        }
        self.recorder.lock().retire();
        Ok(())
    }

    /// Uploads to a 4-byte aligned part of a buffer, in order with what is recorded.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout), [`OutOfMemory`](BackendError::OutOfMemory): a multiple of the
    /// staging buffers' size may have been uploaded.
    pub(crate) fn upload(&self, op: &'static str, dst: &DeviceSlice, bytes: &[u8]) -> BackendResult<()> {
        let mut deadline = None;
        for (i, chunk) in bytes.chunks(StagingRing::CHUNK).enumerate() {
            let mut reclaimed = false;
            loop {
                let uploaded = self.recorder.lock().upload(op, dst, i * StagingRing::CHUNK, chunk);
                let busy = match uploaded {
                    Ok(None) => break,
                    Ok(Some(busy)) => busy,
                    Err(BackendError::OutOfMemory { .. }) if !reclaimed => {
                        self.reclaim(&self.deadline(op))?;
                        reclaimed = true;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let deadline: &mut Deadline = deadline.get_or_insert_with(|| self.deadline(op));
                self.submitter.wait(&busy, deadline)?;
                self.recorder.lock().retire();
                // Staging buffers come back by a callback.
                self.submitter.poll();
                thread::yield_now();
                deadline.remaining()?;
            }
        }
        Ok(())
    }

    /// Checks the operands of a call and returns their memory.
    pub(crate) fn resolve<const N: usize>(
        &self,
        op: &'static str,
        operands: &[Operand; N],
    ) -> BackendResult<[Option<DeviceSlice>; N]> {
        self.memory.resolve(op, operands)
    }

    /// # Errors
    /// [`Unsupported`](BackendError::Unsupported) where the device has no such type.
    pub(crate) fn require_dtype(&self, op: &'static str, dtype: DType) -> BackendResult<()> {
        if dtype == DType::F16 && !self.gpu.device.features().contains(wgpu::Features::SHADER_F16) {
            return Err(BackendError::Unsupported { op, need: "a device with SHADER_F16".to_owned() });
        }
        Ok(())
    }

    /// What a kernel sees of an output.
    pub(crate) fn output(
        &self,
        op: &'static str,
        slice: &DeviceSlice,
        dtype: DType,
    ) -> BackendResult<Window> {
        Window::new(op, slice, dtype, self.limits)
    }

    /// What a kernel sees of an input. One that lies in the output's buffer is copied first: a buffer can't
    /// be read through one binding and written through another.
    pub(crate) fn input(
        &self,
        op: &'static str,
        slice: &DeviceSlice,
        dtype: DType,
        output: &Window,
    ) -> BackendResult<Window> {
        let window = Window::new(op, slice, dtype, self.limits)?;
        if !window.shares_buffer(output) {
            return Ok(window);
        }
        let scratch = self.scratch(op, slice.len.next_multiple_of(4))?;
        ops::copy_bytes(self, op, &scratch, slice, slice.len)?;
        Window::new(op, &scratch, dtype, self.limits)
    }

    /// [`input`](Self::input) of an operand that may be left out.
    pub(crate) fn optional_input(
        &self,
        op: &'static str,
        slice: Option<&DeviceSlice>,
        dtype: DType,
        output: &Window,
    ) -> BackendResult<Window> {
        match slice {
            Some(slice) => self.input(op, slice, dtype, output),
            None => Ok(self.null()),
        }
    }

    /// A binding for an operand that a kernel doesn't touch.
    pub(crate) fn null(&self) -> Window {
        untouched(&self.null)
    }

    /// A binding for an output that a kernel doesn't touch, which can't be bound to what is read in the same
    /// dispatch.
    pub(crate) fn sink(&self) -> Window {
        untouched(&self.sink)
    }

    /// Records one dispatch: the read-only windows in the order of the kernel's bindings, then the output.
    pub(crate) fn launch<P: Pod>(
        &self,
        op: &'static str,
        variant: &Variant,
        reads: &[&Window],
        output: &Window,
        params: &P,
        grid: [u32; 3],
    ) -> BackendResult<()> {
        const { assert!(size_of::<P>() <= MAX_PARAMS as usize, "the parameters don't fit in the immediates") };
        debug_assert!(reads.len() < MAX_BINDINGS, "{variant:?}");
        let commands = match &self.mode {
            Mode::Record(commands) => commands,
            Mode::DryRun(variants) => {
                variants.lock().push(*variant);
                return Ok(());
            }
        };
        let kernel = self.pipelines.get(variant).map_err(|error| self.explain(error))?;
        let windows = reads.iter().copied().chain([output]).cloned();
        let mut command = Command::new(op, kernel, windows, bytemuck::bytes_of(params), grid)?;
        debug_assert!(
            variant.source.cooperative || command.writes_are_apart(),
            "browsers, which have no cooperative matrices, refuse two bindings to write one buffer: {variant:?}"
        );
        command.begins_batch = self.pace.take_due();
        commands.lock().push(command);
        Ok(())
    }

    /// Says that the launches which follow should take the device so many seconds. They begin a submission of
    /// their own if they would be too long together with what was recorded before.
    pub(crate) fn expect(&self, seconds: f64) {
        if matches!(self.mode, Mode::Record(_)) {
            self.pace.add(seconds);
        }
    }

    /// Blocks until everything recorded so far has finished.
    pub(crate) fn synchronize(&self, op: &'static str) -> BackendResult<()> {
        if cfg!(target_family = "wasm") {
            return Err(BackendError::WouldBlock { op });
        }
        let newest = {
            let mut recorder = self.recorder.lock();
            recorder.submit()?;
            recorder.newest()
        };
        // Waited for without the lock, so that other threads go on recording.
        let deadline = self.deadline(op);
        if let Some(newest) = newest {
            self.submitter.wait(&newest, &deadline)?;
        }
        self.recorder.lock().retire();
        self.submitter.confirm(&deadline)?;
        self.take_late(op, self.gpu.health.witness(), 0)
    }

    /// Waits until everything recorded so far has finished, without blocking.
    pub(crate) async fn synchronize_async(&self, op: &'static str) -> BackendResult<()> {
        let witness = self.gpu.health.witness();
        let done = Signal::default();
        {
            let _guard = self.gl_lock.lock();
            self.recorder.lock().submit_then(vec![Then::Tell(done.clone())])?;
        }
        done.wait(self).await?;
        self.gpu.health.settle(&self.gpu.device).await?;
        let _guard = self.gl_lock.lock();
        self.recorder.lock().retire();
        self.take_late(op, witness, 0)
    }

    /// What the device reported that the caller has yet to be told; `spoiled` as in
    /// [`take_late`](crate::device::Health).
    pub(crate) fn take_late(&self, op: &'static str, witness: Witness, spoiled: u64) -> BackendResult<()> {
        #[cfg(feature = "count-out-of-bounds")]
        self.pipelines.counters().take(op, &self.gpu.device, &self.gpu.queue)?;
        let late = self.gpu.health.take_late(op, witness, spoiled, || self.memory.stats().in_use);
        late.map_err(|error| self.explain(error))
    }

    /// What a call returns that got `error` from the driver, of which a loss may be the cause.
    pub(crate) fn explain(&self, error: BackendError) -> BackendError {
        self.gpu.health.explain(&self.gpu.device, error)
    }
}

fn untouched(block: &Arc<Block>) -> Window {
    let size = block.size() as u64;
    Window {
        block: Arc::clone(block),
        start: 0,
        size,
        offset: 0,
        #[cfg(feature = "count-out-of-bounds")]
        operand: 0..size,
    }
}

/// Not from the pool, whose statistics are the caller's allocations.
fn null_buffer(device: &wgpu::Device) -> BackendResult<wgpu::Buffer> {
    let size = 16;
    let descriptor = wgpu::BufferDescriptor {
        label: Some("null"),
        size,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    };
    guarded(device, || device.create_buffer(&descriptor))
        .map_err(|_| BackendError::OutOfMemory { requested: size as usize, in_use: 0 })
}

/// The grid of `groups` workgroups in a row, folded into a second dimension where there are too many for one;
/// the kernel unfolds it with `flat_group`.
///
/// # Errors
/// [`Limit`](BackendError::Limit) past 65 535 rows of 65 535.
pub(crate) fn linear_grid(op: &'static str, groups: usize) -> BackendResult<[u32; 3]> {
    let rows = groups.div_ceil(MAX_GROUPS as usize).max(1);
    let columns = groups.div_ceil(rows);
    match (u32::try_from(columns), u32::try_from(rows)) {
        (Ok(columns), Ok(rows)) if rows <= MAX_GROUPS => Ok([columns, rows, 1]),
        _ => Err(BackendError::Limit {
            op,
            what: "workgroups",
            requested: groups,
            max: (MAX_GROUPS as usize).saturating_mul(MAX_GROUPS as usize),
        }),
    }
}

/// A size or stride as a kernel takes it.
///
/// # Errors
/// [`Limit`](BackendError::Limit) past 2³².
pub(crate) fn dim(op: &'static str, what: &'static str, value: usize) -> BackendResult<u32> {
    u32::try_from(value).map_err(|_| BackendError::Limit {
        op,
        what,
        requested: value,
        max: u32::MAX as usize,
    })
}
