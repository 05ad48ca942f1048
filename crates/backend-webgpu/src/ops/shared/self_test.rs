//! What only a trial tells about a device: whether a variant on cooperative matrices gives right results
//! there, and how many iterations its loops make (see [`iterations`](super::iterations)).
//!
//! Cooperative matrices are an experimental feature of wgpu, and a driver that can't compile such a kernel
//! may say so only when it is used, or never. So each variant has to give known results before it is used for
//! anything else: products of small integers, which f16 and f32 hold exactly, or attention close to the
//! host's. A variant that fails is not used again; one whose test ended without a result, because the device
//! was busy or out of memory, is tried again at its next use.

use std::sync::Arc;

use backend_api::{BackendError, BackendResult, DType, Diagnostic};
use bytemuck::Pod;
use half::f16;

use crate::device::{Health, Witness, guarded};
use crate::kernels::Variant;
use crate::memory::{Block, DeviceSlice, buffer_outside};
use crate::ops::op_context::OpContext;
use crate::recorder::{Command, Recorder, Signal, Submits, Submitter, Then, Window};
use crate::transfer::StagingRing;

/// What errors carry.
pub(in crate::ops) const OP: &str = "self-test";

/// Up to here, f16 has every whole number.
pub(in crate::ops) const WHOLE: usize = 2048;

/// Work with a recorder and a health of its own: what fails here takes none of the callers' work with it.
pub(in crate::ops) struct SelfTest<'a> {
    ctx: &'a OpContext,
    recorder: Recorder,
    submitter: Arc<Submitter>,
    health: Arc<Health>,
    /// From before the test, so that its errors are its own.
    witness: Witness,
}

impl<'a> SelfTest<'a> {
    pub(in crate::ops) fn new(ctx: &'a OpContext) -> Self {
        let (device, queue, health) = (&ctx.gpu().device, &ctx.gpu().queue, Health::detached());
        // By a thread of its own where the driver works off what is queued before it returns.
        let has_thread = ctx.device.submitter.has_thread();
        let submits = if has_thread { Submits::Worker } else { Submits::Caller };
        let submitter = Arc::new(Submitter::new(device, queue, &health, &Arc::default(), submits));
        let layout = ctx.device.pipelines.params_layout();
        let recorder = Recorder::new(device, &submitter, layout, &Arc::default(), &Arc::default());
        Self { ctx, recorder, submitter, witness: health.witness(), health }
    }

    /// Integers as f16.
    pub(in crate::ops) fn halves(&mut self, numbers: &[i32]) -> BackendResult<Window> {
        let elements = numbers.iter().map(|&x| f16::from_f32(x as f32));
        let bytes: Vec<u8> = elements.flat_map(f16::to_le_bytes).collect();
        let slice = self.upload(&bytes)?;
        Ok(self.ctx.output(&slice, DType::F16))
    }

    /// Integers of i32.
    pub(in crate::ops) fn integers(&mut self, numbers: &[i32]) -> BackendResult<Window> {
        let slice = self.upload(bytemuck::cast_slice(numbers))?;
        Ok(self.ctx.output(&slice, DType::I32))
    }

    /// A buffer with these bytes, outside of the pool, whose buffers may still be in use by work that is
    /// recorded and not submitted.
    pub(in crate::ops) fn upload(&mut self, bytes: &[u8]) -> BackendResult<DeviceSlice> {
        let ctx = self.ctx;
        let mut words = bytes.to_vec();
        words.resize(bytes.len().next_multiple_of(4), 0);
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let device = &ctx.gpu().device;
        let create = || buffer_outside(device, OP, words.len(), usage);
        let buffer = guarded(device, create).map_err(|_| BackendError::OutOfMemory {
            requested: words.len(),
            in_use: ctx.device.memory.stats().in_use,
        })?;
        let slice = DeviceSlice { block: Arc::new(Block::foreign(buffer)), offset: 0, len: words.len() };
        let most = StagingRing::chunk(&ctx.gpu().limits);
        for (i, chunk) in words.chunks(most).enumerate() {
            if self.recorder.upload(OP, &slice.block, i * most, chunk)?.is_some() {
                let need = "fewer operands than fill the staging buffers".to_owned();
                return Err(BackendError::Unsupported { op: OP, need });
            }
        }
        Ok(slice)
    }

    /// Room for so many results of a type. Each is NaN until it is written.
    pub(in crate::ops) fn results(&mut self, count: usize, dtype: DType) -> BackendResult<Results> {
        let bytes = vec![0xff; (count * dtype.size()).next_multiple_of(4)];
        let slice = self.upload(&bytes)?;
        Ok(Results { window: self.ctx.output(&slice, dtype), slice, bytes, dtype })
    }

    /// Runs what is recorded; the results as integers, `None` for NaN and all that is none.
    pub(in crate::ops) fn whole_numbers(&mut self, results: Results) -> BackendResult<Vec<Option<i32>>> {
        let Results { slice, mut bytes, dtype, .. } = results;
        self.read(&slice, &mut bytes)?;
        Ok(whole_numbers(&bytes, dtype).collect())
    }

    /// Records a kernel with all its windows.
    pub(in crate::ops) fn launch<P: Pod>(
        &mut self,
        variant: &Variant,
        windows: &[&Window],
        params: &P,
        grid: [u32; 3],
    ) -> BackendResult<()> {
        let kernel = self.ctx.device.pipelines.get(variant)?;
        let windows = windows.iter().copied().cloned();
        let command = Command::new(OP, kernel, windows, bytemuck::bytes_of(params), grid)?;
        self.recorder.record(&[command])
    }

    /// Runs what is recorded and reads all of `slice`.
    pub(in crate::ops) fn read(&mut self, slice: &DeviceSlice, bytes: &mut [u8]) -> BackendResult<()> {
        let ctx = self.ctx;
        let staging = ctx.device.readback.acquire(bytes.len())?;
        let mapped = Signal::default();
        let then = Then::Map(staging.clone(), mapped.clone());
        let mut wait = ctx.waits().wait(OP, ctx.device.timeout());
        let deadline = wait.deadline();
        let ticket = self.recorder.read_back(&slice.block, 0, &staging, bytes.len() as u64, then)?;
        // An invalid pipeline is reported when it is submitted, here or by the thread.
        self.health.take_late(OP, self.witness, 0, || 0)?;
        self.submitter.wait(&ticket, &deadline)?;
        self.health.take_late(OP, self.witness, 0, || 0)?;
        let mapped = mapped.settle(&self.submitter, &deadline)?;
        ctx.device.readback.finish(OP, staging, mapped, 0, bytes)
    }
}

impl Drop for SelfTest<'_> {
    /// What the device still works on is waited for no longer than the call may wait.
    fn drop(&mut self) {
        #[cfg(not(target_family = "wasm"))]
        self.submitter.close_within(self.ctx.time_left(OP).unwrap_or_default());
    }
}

/// Results of a self-test.
pub(in crate::ops) struct Results {
    /// Where kernels write them.
    pub(in crate::ops) window: Window,
    slice: DeviceSlice,
    bytes: Vec<u8>,
    dtype: DType,
}

/// An error that names the first element that is not as it should be.
pub(in crate::ops) fn compare(found: &[Option<i32>], wanted: &[Option<i32>]) -> BackendResult<()> {
    let Some(at) = (0..wanted.len()).find(|&at| found.get(at) != wanted.get(at)) else {
        return Ok(());
    };
    Err(BackendError::Driver {
        op: OP,
        source: Diagnostic::new(format!("element {at} is {:?}, not {:?}", found.get(at), wanted.get(at))),
    })
}

/// Integers without a pattern, from −3 to 3 or fewer, so that sums of `terms` of their products are integers
/// of f16.
pub(in crate::ops) fn numbers(seed: u32, count: usize, terms: usize) -> Vec<i32> {
    let most = [3, 2].into_iter().find(|most| most * most * terms <= WHOLE).unwrap_or(1);
    let mix = |i: u32| (i ^ (i >> 15)).wrapping_mul(0x2c1b_3c6d) >> 16;
    let number = |i: u32| mix(i.wrapping_mul(0x9e37_79b9) ^ seed) as usize % (2 * most + 1);
    (0..count as u32).map(|i| number(i) as i32 - most as i32).collect()
}

/// The elements as integers, `None` for NaN and all that is none.
fn whole_numbers(bytes: &[u8], dtype: DType) -> impl Iterator<Item = Option<i32>> {
    bytes.chunks_exact(dtype.size()).map(move |bytes| {
        let x = match *bytes {
            [a, b] => f16::from_le_bytes([a, b]).to_f32(),
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            _ => f32::NAN,
        };
        (x.fract() == 0.0).then_some(x as i32)
    })
}
