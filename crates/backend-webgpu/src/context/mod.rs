//! An opened device, with everything that belongs to it.

mod graphs;
mod read_back;

#[cfg(not(target_family = "wasm"))]
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use backend_api::support::GraphTable;
use backend_api::{BackendError, BackendResult, DeviceKind, MemoryStats};

#[cfg(not(target_family = "wasm"))]
use crate::cache::Cache;
use crate::device::{GlLock, Gpu, GuardedDevice, LastHandle, Progress, Witness, guarded};
use crate::kernels::{Kernel, MAX_IMMEDIATES, Pipelines, Target, Variant};
use crate::memory::{Allocation, Block, DeviceSlice, Memory, Pool, Use, VECTOR_BYTES, buffer_outside};
pub(crate) use crate::recorder::MAX_GROUPS;
use crate::recorder::{
    BindingLimits, Command, Count, Deadline, Graph, Recorder, Signal, Submits, Submitter, Then, Waits,
    Window, batch_finished, usual_spin,
};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, thread};
use crate::transfer::{Readback, StagingRing};
#[cfg(not(target_family = "wasm"))]
use crate::unchecked::device_memory;

pub(crate) use read_back::{copy_dtoh, copy_dtoh_async, read_buffer};

/// An opened device, with everything that belongs to it.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) gpu: Gpu,
    pub(crate) memory: Memory,
    pub(crate) pipelines: Pipelines,
    pub(crate) recorder: Mutex<Recorder>,
    pub(crate) submitter: Arc<Submitter>,
    pub(crate) readback: Readback,
    graphs: Mutex<GraphTable<Graph>>,
    #[cfg(not(target_family = "wasm"))]
    pub(crate) cache: Option<Cache>,
    pub(crate) gl_lock: GlLock,
    pub(crate) limits: BindingLimits,
    timeout_nanos: AtomicU64,
    /// Bound where an operation leaves out an operand.
    null: Arc<Block>,
    /// Bound where an operation leaves out an output.
    sink: Arc<Block>,
    /// What workgroups of one launch tell each other; made at the first use.
    fixup: OnceLock<Arc<Block>>,
    /// Below all else that has a handle of the device, as fields are dropped in their order.
    #[cfg_attr(target_family = "wasm", expect(dead_code, reason = "it waits when it is dropped"))]
    last: Arc<LastHandle>,
}

/// Words that launches whose last workgroup does something for all share: 4 MiB, a few tiles of each compute unit of a large
/// device.
pub(crate) const FIXUP_WORDS: usize = 1 << 20;

/// Counters of workgroups, with which these words begin, as lib/last_workgroup has them.
pub(crate) const FIXUP_COUNTERS: usize = 1024;

impl Context {
    /// The longest wait for the device before a call gives up.
    pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

    pub(crate) fn new(gpu: Gpu) -> BackendResult<Self> {
        // Where the rest fails, the device closes with this.
        let last = Arc::new(LastHandle::new(&gpu.device));
        #[cfg(not(target_family = "wasm"))]
        last.set_patience(Self::DEFAULT_TIMEOUT);
        Self::closed_by(&last, gpu)
    }

    fn closed_by(last: &Arc<LastHandle>, gpu: Gpu) -> BackendResult<Self> {
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
        // An OpenGL context belongs to the thread that holds the lock.
        let submits = match (gl_lock.is_needed(), is_software) {
            (true, _) => Submits::Caller,
            (false, true) => Submits::Worker,
            (false, false) => Submits::Deferred,
        };
        let submitter = Arc::new(Submitter::new(device, &gpu.queue, &gpu.health, &progress, submits));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        submitter.set_spin(usual_spin(gpu.info.kind, cores));
        #[cfg(not(target_family = "wasm"))]
        let capacity = device_memory(&gpu.adapter);
        #[cfg(target_family = "wasm")]
        let capacity = None;
        let memory = Memory::new(Pool::new(device, capacity, &progress, &has_dropped, last));
        let pipelines = Pipelines::new(device, target, gpu.takes_spirv);
        let copier = Arc::default();
        let mut recorder =
            Recorder::new(device, &submitter, pipelines.params_layout(), &has_dropped, &copier);
        if gpu.info.kind == DeviceKind::DiscreteGpu {
            recorder.suit_discrete_gpu();
        }
        Ok(Self {
            last: Arc::clone(last),
            null: Arc::new(Block::internal(own_buffer(device, "null", VECTOR_BYTES)?)),
            sink: Arc::new(Block::internal(own_buffer(device, "sink", VECTOR_BYTES)?)),
            fixup: OnceLock::new(),
            memory,
            recorder: Mutex::new(recorder),
            submitter,
            readback: Readback::new(device, &copier),
            graphs: Mutex::default(),
            #[cfg(not(target_family = "wasm"))]
            cache: None,
            gl_lock,
            limits: BindingLimits::of(limits),
            timeout_nanos: AtomicU64::new(Self::DEFAULT_TIMEOUT.as_nanos() as u64),
            pipelines,
            gpu,
        })
    }

    /// Takes pipelines that another process has compiled from a folder, and keeps there what it compiles.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn with_cache(mut self, folder: Option<PathBuf>) -> Self {
        self.cache = folder.map(|folder| Cache::open(folder, &self.gpu));
        self.pipelines.use_cache(self.cache.as_ref().and_then(Cache::pipelines).cloned());
        self
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_nanos(self.timeout_nanos.load(Ordering::Relaxed))
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) {
        self.timeout_nanos.store(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Closes the device, when it is dropped, within this time or in the background.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn close_within(&self, patience: Duration) {
        self.last.set_patience(patience);
    }

    /// The handle that closes the device, for kernels and buffers that may outlive the context.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn last_handle(&self) -> Arc<LastHandle> {
        Arc::clone(&self.last)
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

    /// Records commands, all of them or none.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout), [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn record(&self, op: &'static str, commands: &[Command], waits: &Waits) -> BackendResult<()> {
        if commands.is_empty() {
            return Ok(());
        }
        self.record_with(op, [Count::untimed(commands.len()); 2], waits, |recorder| recorder.record(commands))
    }

    /// Waits until the device isn't too far behind for a batch of nothing but a copy.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout), [`DeviceLost`](BackendError::DeviceLost).
    fn wait_for_backlog(&self, deadline: &Deadline) -> BackendResult<()> {
        loop {
            let busy = self.recorder.lock().backlog();
            let Some(busy) = busy else { return Ok(()) };
            self.submitter.wait(&busy, deadline)?;
        }
    }

    /// [`wait_for_backlog`](Self::wait_for_backlog) without blocking: futures that were dropped have left their batches in flight.
    async fn wait_for_backlog_async(&self) -> BackendResult<()> {
        loop {
            let busy = {
                let _guard = self.gl_lock.lock();
                self.recorder.lock().backlog()
            };
            let Some(busy) = busy else { return Ok(()) };
            batch_finished(&busy, &self.submitter, &self.gl_lock).await?;
        }
    }

    /// Calls `record` when there is room for so many commands.
    fn record_with(
        &self,
        op: &'static str,
        [first, whole]: [Count; 2],
        waits: &Waits,
        record: impl FnOnce(&mut Recorder) -> BackendResult<()>,
    ) -> BackendResult<()> {
        let mut wait = waits.wait(op, self.timeout());
        loop {
            let mut recorder = self.recorder.lock();
            let Some(busy) = recorder.admit(first, whole)? else {
                return record(&mut recorder);
            };
            drop(recorder);
            self.submitter.wait(&busy, &wait.deadline())?;
        }
    }

    /// The compiled kernel of a variant.
    ///
    /// # Errors
    /// [`Kernel`](BackendError::Kernel).
    pub(crate) fn pipeline(&self, variant: &Variant) -> BackendResult<Arc<Kernel>> {
        self.pipelines.get(variant).map_err(|error| self.explain(error))
    }

    /// Compiles a kernel and lets other tasks go on. Other threads may use the device meanwhile:
    /// the OpenGL lock is held for the compilation alone.
    pub(crate) async fn compile(&self, variant: &Variant) -> BackendResult<()> {
        self.pipelines.compile_async(variant, &self.gl_lock).await
    }

    /// Memory for a use, in several buffers where one can't be so large; its content is arbitrary.
    ///
    /// # Errors
    /// [`Limit`](BackendError::Limit), [`OutOfMemory`](BackendError::OutOfMemory).
    fn allocate(&self, op: &'static str, of: Use, waits: &Waits) -> BackendResult<Arc<Block>> {
        let Some(len) = self.memory.pool().division(op, of.asked)? else {
            return self.allocate_buffer(op, of, true, waits);
        };
        self.allocate_parts(op, of, len, waits).map_err(|error| match error {
            // The other parts aren't in use any more.
            BackendError::OutOfMemory { .. } => {
                BackendError::OutOfMemory { requested: of.asked, in_use: self.memory.stats().in_use }
            }
            error => error,
        })
    }

    /// Memory in buffers of `len` bytes, all of them or none.
    fn allocate_parts(
        &self,
        op: &'static str,
        of: Use,
        len: usize,
        waits: &Waits,
    ) -> BackendResult<Arc<Block>> {
        let part = |start: usize| {
            let rest = of.asked.saturating_sub(start);
            self.allocate_buffer(op, Use { asked: rest.min(len), ..of }, rest <= len, waits)
        };
        let first = part(0)?;
        let rest = (len..of.asked).step_by(len).map(part).collect::<BackendResult<_>>()?;
        Ok(Block::divided(first, rest, len))
    }

    /// Memory for a use in one buffer; `is_last` unless the allocation takes more.
    fn allocate_buffer(
        &self,
        op: &'static str,
        of: Use,
        is_last: bool,
        waits: &Waits,
    ) -> BackendResult<Arc<Block>> {
        let pool = self.memory.pool();
        let (mut reclaims, mut wait) = (0, waits.wait(op, self.timeout()));
        loop {
            match pool.alloc(op, of, is_last)? {
                Allocation::Done(block) => return Ok(block),
                Allocation::NeedsReclaim(error) if reclaims == Self::MAX_RECLAIMS => return Err(error),
                Allocation::NeedsReclaim(_) => self.reclaim(&wait.deadline())?,
            }
            reclaims += 1;
        }
    }

    /// Memory that a handle names.
    pub(crate) fn alloc(&self, op: &'static str, bytes: usize, waits: &Waits) -> BackendResult<u64> {
        let of = Use { asked: bytes, is_scratch: false };
        self.memory.insert(op, self.allocate(op, of, waits)?, bytes)
    }

    /// Memory for one operation's own use, given back when the slice is dropped.
    pub(crate) fn scratch(
        &self,
        op: &'static str,
        bytes: usize,
        waits: &Waits,
    ) -> BackendResult<DeviceSlice> {
        let of = Use { asked: bytes, is_scratch: true };
        Ok(DeviceSlice { block: self.allocate(op, of, waits)?, offset: 0, len: bytes })
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
    pub(crate) fn upload(
        &self,
        op: &'static str,
        dst: &DeviceSlice,
        bytes: &[u8],
        waits: &Waits,
    ) -> BackendResult<()> {
        let mut wait = waits.wait(op, self.timeout());
        let most = StagingRing::chunk(&self.gpu.limits);
        let mut rest = bytes;
        while !rest.is_empty() {
            let start = dst.offset + (bytes.len() - rest.len());
            let piece = dst.block.piece(start, rest.len().min(most));
            let (chunk, behind) = rest.split_at(piece.len);
            rest = behind;
            let mut reclaimed = false;
            loop {
                let uploaded = self.recorder.lock().upload(op, piece.block, piece.offset, chunk);
                let busy = match uploaded {
                    Ok(None) => break,
                    Ok(Some(busy)) => busy,
                    Err(BackendError::OutOfMemory { .. }) if !reclaimed => {
                        self.reclaim(&wait.deadline())?;
                        reclaimed = true;
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                let deadline = wait.deadline();
                self.submitter.wait(&busy, &deadline)?;
                self.recorder.lock().retire();
                // Staging buffers come back by a callback.
                self.submitter.poll();
                thread::yield_now();
                deadline.remaining()?;
            }
        }
        Ok(())
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

    /// A binding of [`FIXUP_WORDS`] words for launches whose last workgroup does something for all. The words begin as zeros;
    /// a launch that counts in some of them leaves these 0. Launches that bind it follow each other: each writes it, so
    /// that wgpu has the next one wait. One that is refused with its submission has counted nothing.
    ///
    /// # Errors
    /// [`OutOfMemory`](BackendError::OutOfMemory).
    pub(crate) fn fixup(&self) -> BackendResult<Window> {
        if let Some(block) = self.fixup.get() {
            return Ok(untouched(block));
        }
        let buffer = own_buffer(&self.gpu.device, "fixup", FIXUP_WORDS * size_of::<u32>())?;
        Ok(untouched(self.fixup.get_or_init(|| Arc::new(Block::internal(buffer)))))
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
        self.wait_for_backlog_async().await?;
        let done = Signal::default();
        {
            let _guard = self.gl_lock.lock();
            self.recorder.lock().submit_then(vec![Then::Tell(done.clone())])?;
        }
        done.wait(&self.submitter, &self.gl_lock).await?;
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
    Window::of_bound(block, 0..block.size() as u64, 1, u32::MAX)
}

/// A buffer of zeros, not from the pool, whose statistics are the caller's allocations.
fn own_buffer(device: &GuardedDevice, label: &'static str, bytes: usize) -> BackendResult<wgpu::Buffer> {
    guarded(device, || buffer_outside(device, label, bytes, wgpu::BufferUsages::STORAGE))
        .map_err(|_| BackendError::OutOfMemory { requested: bytes, in_use: 0 })
}
