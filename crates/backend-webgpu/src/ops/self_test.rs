//! Trying a variant on cooperative matrices before it is trusted.
//!
//! They are an experimental feature of wgpu, and a driver that can't compile such a kernel may say so only when it is
//! used, or never. So each variant has to give known results before it is used for anything else. One that fails is not
//! used again.

use std::collections::HashMap;
use std::sync::Arc;

use backend_api::{BackendError, BackendResult};
use bytemuck::Pod;
use parking_lot::RwLock;

use crate::context::Context;
use crate::device::{Health, guarded};
use crate::kernels::Variant;
use crate::memory::{Block, DeviceSlice};
use crate::recorder::{Launch, Recorder, Window, wait};

/// The name that errors of a self-test carry.
pub(super) const OP: &str = "self-test of cooperative matrices";

/// The variants that were tried, and whether they were right.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    known: RwLock<HashMap<Variant, bool>>,
}

impl Proofs {
    /// Whether the variant passed `check`, which is made at its first use.
    pub(super) fn holds(&self, variant: &Variant, check: impl FnOnce() -> BackendResult<()>) -> bool {
        if let Some(&known) = self.known.read().get(variant) {
            return known;
        }
        // Tried without the lock: another thread may try the same, and the first to finish decides.
        let found = match check() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(?error, ?variant, "cooperative matrices fail on this device; doing without");
                false
            }
        };
        *self.known.write().entry(*variant).or_insert(found)
    }
}

/// Work with a recorder and a health of its own: what fails here takes none of the callers' work with it.
pub(super) struct SelfTest<'a> {
    ctx: &'a Context,
    health: Arc<Health>,
    recorder: Recorder,
}

impl<'a> SelfTest<'a> {
    pub(super) fn new(ctx: &'a Context) -> Self {
        let (device, queue, health) = (&ctx.gpu.device, &ctx.gpu.queue, Health::detached());
        let (target, layout) = (ctx.pipelines.target(), ctx.pipelines.params_layout());
        let recorder = Recorder::new(device, queue, &health, target, layout);
        Self { ctx, health, recorder }
    }

    /// A buffer with these bytes, outside of the pool, whose buffers may still be in use by work that is recorded and
    /// not submitted.
    pub(super) fn upload(&mut self, bytes: &[u8]) -> BackendResult<DeviceSlice> {
        let mut words = bytes.to_vec();
        words.resize(bytes.len().next_multiple_of(4), 0);
        let create = || {
            self.ctx.gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(OP),
                size: words.len() as u64,
                usage: wgpu::BufferUsages::STORAGE
                    | wgpu::BufferUsages::COPY_DST
                    | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: false,
            })
        };
        let buffer = guarded(&self.ctx.gpu.device, create).map_err(|_| BackendError::OutOfMemory {
            requested: words.len(),
            in_use: self.ctx.memory.stats().in_use,
        })?;
        let slice = DeviceSlice { block: Arc::new(Block::foreign(buffer)), offset: 0, len: words.len() };
        self.recorder.upload(OP, &slice, &words, self.ctx.timeout())?;
        Ok(slice)
    }

    /// Records a dispatch with every window in the order of the kernel's bindings.
    pub(super) fn launch<P: Pod>(
        &mut self,
        variant: &Variant,
        windows: &[&Window],
        params: &P,
        grid: [u32; 3],
    ) -> BackendResult<()> {
        let kernel = self.ctx.pipelines.get(variant)?;
        let launch = Launch { kernel: &kernel, windows, params: bytemuck::bytes_of(params), grid };
        self.recorder.launch(OP, &launch, self.ctx.timeout())
    }

    /// Runs what is recorded and reads all of `slice`.
    pub(super) fn read_back(&mut self, slice: &DeviceSlice, bytes: &mut [u8]) -> BackendResult<()> {
        let (ctx, health, device) = (self.ctx, &self.health, &self.ctx.gpu.device);
        let staging = ctx.readback.acquire(bytes.len())?;
        self.recorder.read_back(OP, &slice.block, 0, &staging, bytes.len() as u64)?;
        // An invalid pipeline is reported when it is submitted.
        health.take_late(OP, 0)?;
        if let Some(index) = self.recorder.newest() {
            wait(OP, device, health, index, ctx.timeout())?;
        }
        let mapped = ctx.readback.map(&staging).settle(OP, device, health, ctx.timeout())?;
        ctx.readback.finish(OP, staging, mapped, 0, bytes)
    }
}
