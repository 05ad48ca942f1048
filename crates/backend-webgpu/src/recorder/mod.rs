//! From launches to submissions.
//!
//! Calls don't run kernels, they record them: into one command encoder with one compute pass, submitted when it is
//! long enough or when somebody waits. Submissions in flight are bounded, and so is the memory that they hold.

mod bind_groups;
mod flight;
mod params;
mod timing;
mod window;

use std::sync::Arc;
use std::time::Duration;

use backend_api::{BackendError, BackendResult};

use crate::device::{Health, guarded};
use crate::kernels::{Kernel, Target};
use crate::memory::{Block, DeviceSlice};
use crate::transfer::StagingRing;
use bind_groups::BindGroups;
use flight::{Flight, Submission};
use params::Params;

pub(crate) use bind_groups::MAX_BINDINGS;
pub(crate) use flight::wait;
pub(crate) use timing::Stopwatch;
pub(crate) use window::{BindingLimits, Window};

/// Commands of a batch, dispatches and uploads. Enough to make the cost of a submission small, few enough to start the
/// device early and to bound what an encoder holds.
const MAX_COMMANDS: usize = 128;
const _: () = assert!(MAX_COMMANDS <= params::SLOTS, "every dispatch of a batch needs a slot");

/// Batches in flight: one being worked on, one waiting, so that the device never runs dry.
const MAX_IN_FLIGHT: usize = 3;

/// One dispatch of a kernel.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'a Kernel,
    /// What is bound, read-only bindings first.
    pub(crate) windows: &'a [&'a Window],
    pub(crate) params: &'a [u8],
    pub(crate) grid: [u32; 3],
}

/// The open batch and those in flight.
#[derive(Debug)]
pub(crate) struct Recorder {
    device: wgpu::Device,
    queue: wgpu::Queue,
    health: Arc<Health>,
    target: Target,
    /// Counts batches from 1.
    batch: u64,
    commands: usize,
    /// Copies that run before everything else of the batch.
    early: Option<wgpu::CommandEncoder>,
    encoder: Option<wgpu::CommandEncoder>,
    pass: Option<OpenPass>,
    groups: BindGroups,
    params: Params,
    staging: StagingRing,
    flight: Flight,
}

#[derive(Debug)]
struct OpenPass {
    pass: wgpu::ComputePass<'static>,
    pipeline: Option<wgpu::ComputePipeline>,
    group: Option<wgpu::BindGroup>,
}

impl Recorder {
    pub(crate) fn new(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        health: &Arc<Health>,
        target: Target,
        params_layout: &wgpu::BindGroupLayout,
    ) -> Self {
        Self {
            device: device.clone(),
            queue: queue.clone(),
            health: Arc::clone(health),
            target,
            batch: 1,
            commands: 0,
            early: None,
            encoder: None,
            pass: None,
            groups: BindGroups::default(),
            params: Params::new(params_layout.clone()),
            staging: StagingRing::new(device),
            flight: Flight::default(),
        }
    }

    /// Makes room in the batch for one command, waiting for the device if it is far behind.
    fn reserve(&mut self, op: &'static str, timeout: Duration) -> BackendResult<()> {
        if self.commands < MAX_COMMANDS {
            return Ok(());
        }
        self.make_way(op, timeout)?;
        self.submit(op)
    }

    /// Waits until another batch may be submitted. In a browser nothing may wait, and the bound is the page's.
    fn make_way(&mut self, op: &'static str, timeout: Duration) -> BackendResult<()> {
        _ = self.device.poll(wgpu::PollType::Poll);
        self.retire();
        if cfg!(target_family = "wasm") {
            return Ok(());
        }
        while self.flight.len() >= MAX_IN_FLIGHT
            && let Some(oldest) = self.flight.oldest()
        {
            wait(op, &self.device, &self.health, oldest, timeout)?;
            self.retire();
        }
        Ok(())
    }

    /// Records a dispatch.
    pub(crate) fn launch(
        &mut self,
        op: &'static str,
        launch: &Launch<'_>,
        timeout: Duration,
    ) -> BackendResult<()> {
        self.reserve(op, timeout)?;
        for window in launch.windows {
            window.block.touch(self.batch);
        }
        let group = self.groups.get(&self.device, &launch.kernel.layout, launch.windows);
        let slot = (!self.target.immediates).then(|| self.params.push(&self.device, launch.params));
        let open = self.open_pass();
        if open.pipeline.as_ref() != Some(&launch.kernel.pipeline) {
            open.pass.set_pipeline(&launch.kernel.pipeline);
            open.pipeline = Some(launch.kernel.pipeline.clone());
        }
        if open.group.as_ref() != Some(&group) {
            open.pass.set_bind_group(0, &group, &[]);
            open.group = Some(group);
        }
        match slot {
            Some((params, offset)) => open.pass.set_bind_group(1, &params.group, &[offset]),
            None => open.pass.set_immediates(0, launch.params),
        }
        let [x, y, z] = launch.grid;
        open.pass.dispatch_workgroups(x, y, z);
        self.commands += 1;
        Ok(())
    }

    /// Uploads `bytes` to a 4-byte aligned part of a buffer, in order with what is recorded.
    pub(crate) fn upload(
        &mut self,
        op: &'static str,
        dst: &DeviceSlice,
        bytes: &[u8],
        timeout: Duration,
    ) -> BackendResult<()> {
        let mut offset = dst.offset as u64;
        for chunk in bytes.chunks(StagingRing::CHUNK) {
            self.reserve(op, timeout)?;
            let (source, start) = loop {
                let written = self.staging.write(op, chunk);
                if let Some(place) = written.map_err(|error| self.unmapped(error))? {
                    break place;
                }
                // The ring is full: what it holds has to reach the device first.
                self.submit(op)?;
                self.await_oldest(op, timeout)?;
            };
            // Nothing in the batch uses the buffer: the copy may come first, and the pass stays open.
            let early = !dst.block.is_touched_by(self.batch);
            let encoder = if early { Self::ensure(&self.device, &mut self.early) } else { self.encoder() };
            encoder.copy_buffer_to_buffer(&source, start, dst.block.buffer(), offset, chunk.len() as u64);
            offset += chunk.len() as u64;
            self.commands += 1;
        }
        Ok(())
    }

    /// What it means that a mapped staging buffer can't be written: nothing but a loss unmaps one. A browser does that
    /// at once and tells of the loss later.
    fn unmapped(&self, error: BackendError) -> BackendError {
        if cfg!(target_family = "wasm") {
            self.health.lose("a mapped buffer is gone");
        }
        self.health.confirm(&self.device).err().unwrap_or(error)
    }

    /// Records a copy to a staging buffer and submits everything; the submission to wait for.
    pub(crate) fn read_back(
        &mut self,
        op: &'static str,
        block: &Block,
        offset: u64,
        staging: &wgpu::Buffer,
        bytes: u64,
    ) -> BackendResult<()> {
        self.encoder().copy_buffer_to_buffer(block.buffer(), offset, staging, 0, bytes);
        self.submit(op)
    }

    /// Records something else than a dispatch, after what is recorded.
    pub(crate) fn encode(&mut self, record: impl FnOnce(&mut wgpu::CommandEncoder)) {
        record(self.encoder());
    }

    /// Submits what is recorded. Errors that wgpu finds now are kept for the next read or synchronize: the calls that
    /// recorded the work have returned.
    pub(crate) fn submit(&mut self, op: &'static str) -> BackendResult<()> {
        self.health.check()?;
        self.pass = None;
        let buffers: Vec<_> = [self.early.take(), self.encoder.take()].into_iter().flatten().collect();
        if buffers.is_empty() {
            return Ok(());
        }
        let _span = tracing::trace_span!("submit", op, commands = self.commands).entered();
        let params = self.params.upload(&self.queue);
        let staging = self.staging.close();
        let submitted = guarded(&self.device, || {
            self.queue.submit(buffers.into_iter().map(wgpu::CommandEncoder::finish).collect::<Vec<_>>())
        });
        let batch = self.batch;
        self.batch += 1;
        self.commands = 0;
        match submitted {
            Ok(index) => self.flight.launch(&self.queue, Submission { batch, index, params, staging }),
            Err(error) => {
                self.health.confirm(&self.device)?;
                self.health.report(error);
            }
        }
        Ok(())
    }

    /// The submission after which everything submitted so far has finished.
    pub(crate) fn newest(&self) -> Option<wgpu::SubmissionIndex> {
        self.flight.newest()
    }

    /// The queue, for callbacks that follow what was submitted.
    pub(crate) fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Gives back what batches held that have finished by the last poll of the device.
    pub(crate) fn retire(&mut self) {
        for submission in self.flight.landed() {
            if let Some(params) = submission.params {
                self.params.recycle(params);
            }
            submission.staging.into_iter().for_each(|buffer| self.staging.recycle(buffer));
        }
    }

    /// Forgets the bind groups, which keep buffers alive.
    pub(crate) fn forget_bind_groups(&mut self) {
        self.groups.clear();
    }

    /// Cached bind groups and bytes of upload staging.
    pub(crate) fn cache_sizes(&self) -> (usize, usize) {
        (self.groups.len(), self.staging.bytes())
    }

    fn await_oldest(&mut self, op: &'static str, timeout: Duration) -> BackendResult<()> {
        if let Some(oldest) = self.flight.oldest() {
            wait(op, &self.device, &self.health, oldest, timeout)?;
        }
        self.retire();
        // What was given back is mapped again by a callback, which runs when the device is polled.
        _ = self.device.poll(wgpu::PollType::Poll);
        Ok(())
    }

    /// The encoder outside of a pass.
    fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        self.pass = None;
        Self::ensure(&self.device, &mut self.encoder)
    }

    fn ensure<'a>(
        device: &wgpu::Device,
        slot: &'a mut Option<wgpu::CommandEncoder>,
    ) -> &'a mut wgpu::CommandEncoder {
        slot.get_or_insert_with(|| device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default()))
    }

    fn open_pass(&mut self) -> &mut OpenPass {
        let encoder = Self::ensure(&self.device, &mut self.encoder);
        self.pass.get_or_insert_with(|| OpenPass {
            pass: encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()).forget_lifetime(),
            pipeline: None,
            group: None,
        })
    }
}
