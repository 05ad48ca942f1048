//! What an opened backend consists of, and what operations ask of it.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backend_api::operand::Operand;
use backend_api::{BackendError, BackendResult, DType, DeviceKind, MemoryStats};
use bytemuck::Pod;
use parking_lot::Mutex;

use crate::device::{Gate, Gpu, LastHandle, guarded};
use crate::kernels::{MAX_PARAMS, Pipelines, Target, Variant};
use crate::memory::{Block, DeviceSlice, Memory};
use crate::ops;
use crate::recorder::{BindingLimits, Launch, MAX_BINDINGS, Recorder, Window, wait};
use crate::transfer::{Readback, Signal};

/// Workgroups along one dimension of a dispatch, on every WebGPU device.
pub(crate) const MAX_GROUPS: u32 = 65_535;

/// An opened device, as operations see it.
#[derive(Debug)]
pub(crate) struct Context {
    parts: Arc<Parts>,
    /// In a rehearsal: the kernels that were asked for instead of launched.
    rehearsed: Option<Mutex<Vec<Variant>>>,
}

/// Everything that belongs to an opened device.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) gpu: Gpu,
    pub(crate) memory: Memory,
    pub(crate) pipelines: Pipelines,
    pub(crate) recorder: Mutex<Recorder>,
    pub(crate) readback: Readback,
    pub(crate) gate: Gate,
    /// Which variants on cooperative matrices were found to be right.
    pub(crate) proofs: ops::Proofs,
    /// Which kernels were measured to be the fastest.
    pub(crate) tuning: ops::Tuning,
    /// The kernel that matrix products have to use, if one was asked for.
    pub(crate) forced_matmul: Mutex<Option<ops::ForcedMatmul>>,
    /// The same for attention.
    pub(crate) forced_attention: Mutex<Option<ops::ForcedAttention>>,
    /// The same for convolutions.
    pub(crate) forced_conv: Mutex<Option<ops::ForcedConv>>,
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

impl Context {
    /// The longest wait for the device before a call gives up.
    const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

    pub(crate) fn new(gpu: Gpu) -> BackendResult<Self> {
        let (device, limits) = (&gpu.device, gpu.device.limits());
        let immediates = gpu.device.features().contains(wgpu::Features::IMMEDIATES);
        let target = Target {
            immediates: immediates && limits.max_immediate_size >= MAX_PARAMS,
            unroll: gpu.info.kind != DeviceKind::SoftwareAdapter,
        };
        let memory = Memory::new(device);
        let pipelines = Pipelines::new(device, target, gpu.takes_spirv);
        let recorder = Recorder::new(device, &gpu.queue, &gpu.health, target, pipelines.params_layout());
        let parts = Parts {
            _last: LastHandle::new(device),
            null: Arc::new(Block::foreign(null_buffer(device)?)),
            sink: Arc::new(Block::foreign(null_buffer(device)?)),
            memory,
            recorder: Mutex::new(recorder),
            readback: Readback::new(device),
            gate: Gate::new(&gpu.adapter),
            proofs: ops::Proofs::default(),
            tuning: ops::Tuning::default(),
            forced_matmul: Mutex::default(),
            forced_attention: Mutex::default(),
            forced_conv: Mutex::default(),
            limits: BindingLimits::of(&limits),
            timeout_ms: AtomicU64::new(Self::DEFAULT_TIMEOUT.as_millis() as u64),
            pipelines,
            gpu,
        };
        Ok(Self { parts: Arc::new(parts), rehearsed: None })
    }

    /// The same device, on which operations are checked and planned but launch nothing.
    pub(crate) fn rehearsal(&self) -> Self {
        Self { parts: Arc::clone(&self.parts), rehearsed: Some(Mutex::default()) }
    }

    /// The kernels that a rehearsal asked for since the last call.
    pub(crate) fn take_rehearsed(&self) -> Vec<Variant> {
        self.rehearsed.as_ref().map(|variants| std::mem::take(&mut *variants.lock())).unwrap_or_default()
    }

    /// Compiles a kernel and lets other tasks go on. Nobody has to wait for a turn at the device meanwhile: the gate is
    /// entered for the compilation alone.
    pub(crate) async fn compile(&self, variant: &Variant) -> BackendResult<()> {
        self.pipelines.compile_async(variant, &self.gate).await
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Relaxed))
    }

    pub(crate) fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
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

    /// What a kernel sees of an input. One that lies in the output's buffer is copied first: a buffer can't be read
    /// through one binding and written through another.
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
        let scratch = self.memory.scratch(op, slice.len.next_multiple_of(4))?;
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

    /// The same for an output, which can't be bound to what is read in the same dispatch.
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
        if let Some(rehearsed) = &self.rehearsed {
            rehearsed.lock().push(*variant);
            return Ok(());
        }
        let kernel = self.pipelines.get(variant)?;
        let mut windows = [output; MAX_BINDINGS];
        windows[..reads.len()].copy_from_slice(reads);
        debug_assert!(
            variant.source.cooperative || is_apart(&windows[variant.source.reads as usize..=reads.len()]),
            "browsers, which have no cooperative matrices, refuse two bindings to write one buffer: {variant:?}"
        );
        let launch = Launch {
            kernel: &kernel,
            windows: &windows[..=reads.len()],
            params: bytemuck::bytes_of(params),
            grid,
        };
        self.recorder.lock().launch(op, &launch, self.timeout())
    }

    /// Blocks until everything recorded so far has finished.
    pub(crate) fn synchronize(&self, op: &'static str) -> BackendResult<()> {
        if cfg!(target_family = "wasm") {
            return Err(BackendError::WouldBlock { op });
        }
        let newest = {
            let mut recorder = self.recorder.lock();
            recorder.submit(op)?;
            recorder.newest()
        };
        // Waited for without the lock, so that other threads go on recording.
        if let Some(index) = newest {
            wait(op, &self.gpu.device, &self.gpu.health, index, self.timeout())?;
        }
        self.recorder.lock().retire();
        self.take_late(op)
    }

    /// Waits until everything recorded so far has finished, without blocking.
    pub(crate) async fn synchronize_async(&self, op: &'static str) -> BackendResult<()> {
        let done = Signal::default();
        {
            let _turn = self.gate.enter();
            let mut recorder = self.recorder.lock();
            recorder.submit(op)?;
            let answer = done.clone();
            recorder.queue().on_submitted_work_done(move || answer.set(()));
        }
        done.wait(self).await?;
        self.gpu.health.settle(&self.gpu.device).await?;
        let _turn = self.gate.enter();
        self.recorder.lock().retire();
        self.take_late(op)
    }

    /// What the device reported since the last read or synchronize.
    pub(crate) fn take_late(&self, op: &'static str) -> BackendResult<()> {
        self.gpu.health.take_late(op, self.memory.stats().in_use)
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        let mut stats = self.memory.stats();
        stats.staging = self.readback.bytes() + self.recorder.lock().cache_sizes().1;
        stats
    }

    /// Gives everything back to the system that is only kept for reuse; how many bytes.
    pub(crate) fn trim(&self) -> usize {
        self.recorder.lock().forget_bind_groups();
        self.readback.trim();
        self.memory.pool().trim()
    }
}

fn untouched(block: &Arc<Block>) -> Window {
    Window { block: Arc::clone(block), start: 0, size: block.size() as u64, offset: 0 }
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

/// The grid of `groups` workgroups in a row, folded into a second dimension where there are too many for one; the
/// kernel unfolds it with `flat_group`.
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

/// Whether each is of another buffer.
fn is_apart(windows: &[&Window]) -> bool {
    (1..windows.len()).all(|i| windows[..i].iter().all(|before| !before.shares_buffer(windows[i])))
}
