//! From commands to submissions.
//!
//! Calls don't run kernels, they record them: into one command encoder with one compute pass, submitted when
//! it is long enough or when somebody waits. Submissions in flight are bounded, and so is the memory that
//! they hold.
//!
//! Nothing here waits: where a call has to, it gets a [`Ticket`] and waits without the recorder's lock.

mod batch;
mod bind_groups;
mod bounds;
mod command;
mod deadline;
#[cfg(not(target_family = "wasm"))]
mod deferred;
mod graph;
mod params;
mod port;
mod signal;
#[cfg(not(target_family = "wasm"))]
mod submit_thread;
mod submitter;
#[cfg(test)]
mod tests;
mod timing;
mod upload;
mod wait;
mod window;
#[cfg(not(target_family = "wasm"))]
mod worker;

use std::collections::VecDeque;
use std::sync::Arc;

use backend_api::BackendResult;

use crate::device::GuardedDevice;
use crate::memory::{Block, Storage};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::transfer::{Copier, StagingRing};
use batch::{Batch, Flow, Flows, InFlight};
use bind_groups::BindGroups;
use bounds::MAX_COMMANDS;
use params::Params;

pub(crate) use batch::{Mapped, Then};
pub(crate) use bounds::Count;
pub(crate) use command::{Command, MAX_GROUPS};
pub(crate) use deadline::{Deadline, Waits};
use graph::FIRST_SEGMENT;
pub(crate) use graph::Graph;
pub(crate) use port::Ticket;
pub(crate) use signal::Signal;
pub(crate) use submitter::{Submits, Submitter, usual_spin};
pub(crate) use timing::Stopwatch;
pub(crate) use wait::batch_finished;
pub(crate) use window::{
    BindingLimits, PART_ALIGNMENT, UNBINDABLE, UNNAMED, VECTOR_BYTES, Window, cut, excess,
};

/// Commands of a batch from which on it may be deferred: what waking a thread takes is then little beside what the call is
/// spared.
const DEFER_FROM: usize = 64;

/// The open batch and those in flight.
#[derive(Debug)]
pub(crate) struct Recorder {
    device: GuardedDevice,
    submitter: Arc<Submitter>,
    /// Counts batches from 1.
    number: u64,
    commands: Count,
    /// Whether batches are as a discrete GPU needs them.
    suits_discrete_gpu: bool,
    /// Whether a caller has encoded something into the open batch that belongs to the commands behind it.
    stays_together: bool,
    /// How many of them make a batch that may be deferred.
    defer_from: usize,
    /// Copies that run before everything else of the batch.
    early: Option<wgpu::CommandEncoder>,
    encoder: Option<wgpu::CommandEncoder>,
    pass: Option<OpenPass>,
    /// Buffers that the batch writes.
    written: Vec<Arc<Storage>>,
    /// Buffers of the caller's too that the batch uses.
    shared: Vec<Arc<Storage>>,
    /// What flows from buffer to buffer in the batch, where that has to be known.
    flows: Vec<Flows>,
    groups: BindGroups,
    /// Set when buffers were dropped, which bind groups may keep alive.
    has_dropped: Arc<AtomicBool>,
    params: Params,
    /// Buffers through which uploads pass. `None` in a browser, which may take away what is mapped at any time, with an
    /// exception that ends the page's program where a mapping is written: there the queue copies uploads itself.
    staging: Option<StagingRing>,
    flight: VecDeque<InFlight>,
}

#[derive(Debug)]
struct OpenPass {
    pass: wgpu::ComputePass<'static>,
    pipeline: Option<wgpu::ComputePipeline>,
    group: Option<wgpu::BindGroup>,
}

impl OpenPass {
    /// Sets the pipeline and the bind group of the next dispatch.
    fn set(&mut self, pipeline: &wgpu::ComputePipeline, group: &wgpu::BindGroup) {
        if self.pipeline.as_ref() != Some(pipeline) {
            self.pass.set_pipeline(pipeline);
            self.pipeline = Some(pipeline.clone());
        }
        if self.group.as_ref() != Some(group) {
            self.pass.set_bind_group(0, group, &[]);
            self.group = Some(group.clone());
        }
    }
}

impl Recorder {
    pub(crate) fn new(
        device: &GuardedDevice,
        submitter: &Arc<Submitter>,
        params_layout: &wgpu::BindGroupLayout,
        has_dropped: &Arc<AtomicBool>,
        copier: &Arc<Copier>,
    ) -> Self {
        Self {
            device: device.clone(),
            submitter: Arc::clone(submitter),
            number: 1,
            commands: Count::default(),
            suits_discrete_gpu: false,
            stays_together: false,
            defer_from: DEFER_FROM,
            early: None,
            encoder: None,
            pass: None,
            written: Vec::new(),
            shared: Vec::new(),
            flows: Vec::new(),
            groups: BindGroups::default(),
            has_dropped: Arc::clone(has_dropped),
            params: Params::new(params_layout.clone()),
            staging: (!cfg!(target_family = "wasm")).then(|| StagingRing::new(device, copier)),
            flight: VecDeque::new(),
        }
    }

    /// Records dispatches, for which [`admit`](Self::admit) has made room.
    pub(crate) fn record(&mut self, commands: &[Command]) -> BackendResult<()> {
        for command in commands {
            // More than a batch holds is more batches, none of which is waited for: the call is recorded as a
            // whole.
            let is_full = !self.commands.is_none() && !self.has_room(Count::untimed(1));
            if is_full || command.begins_batch || self.should_begin() {
                self.next_batch()?;
            }
            self.dispatch(command);
        }
        Ok(())
    }

    /// Records the commands of a graph, for which [`admit`](Self::admit) has made room.
    /// `is_due` is told how long each segment should take, and says whether what was recorded before it has to
    /// be submitted first.
    pub(crate) fn replay(&mut self, graph: &Graph, is_due: &mut dyn FnMut(f64) -> bool) -> BackendResult<()> {
        // Behind few commands, such as copies of the graph's inputs. Replays that follow each other fill batches instead.
        let may_cut = self.commands.all < FIRST_SEGMENT && !self.stays_together;
        for (number, segment) in graph.segments.iter().enumerate() {
            let is_full = !self.commands.is_none() && !self.has_room(segment.count());
            // A device that has nothing to do begins while the rest is encoded.
            if is_due(segment.seconds) || is_full || number > 0 && may_cut && self.is_idle() {
                self.next_batch()?;
            }
            // Asked first: a batch that is refused between the two has spoiled what it should have written.
            let keeps_flows = self.keeps_flows();
            if self.submitter.health().has_late_errors() {
                segment.flows.iter().for_each(Flow::spoil);
            }
            if keeps_flows {
                self.flows.push(Flows::Captured(Arc::clone(&segment.flows)));
            }
            for block in &segment.used {
                self.note_use(block);
            }
            for storage in &segment.written {
                if storage.write(self.number) {
                    self.written.push(Arc::clone(storage));
                }
            }
            let _span = tracing::trace_span!("encode", commands = segment.count().all).entered();
            graph.encode(segment, self.open_pass());
            self.commands = self.commands + segment.count();
        }
        Ok(())
    }

    fn dispatch(&mut self, command: &Command) {
        self.note_uses(command);
        let group = self.groups.get(&self.device, &command.kernel.layout, &command.windows);
        let uniform = command.kernel.layout.signature.uniform;
        let slot = uniform.then(|| self.params.push(&self.device, &command.params));
        let pipeline = &command.kernel.pipeline;
        let open = self.open_pass();
        open.set(pipeline, &group);
        match slot {
            Some((params, offset)) => open.pass.set_bind_group(1, &params, &[offset]),
            None if command.params.is_empty() => {}
            None => open.pass.set_immediates(0, &command.params),
        }
        let [x, y, z] = command.grid;
        open.pass.dispatch_workgroups(x, y, z);
        self.commands = self.commands + Count::untimed(1);
    }

    /// Notes which buffers the batch uses, and which of them get what late errors have spoiled.
    fn note_uses(&mut self, command: &Command) {
        let (sources, (_, writes)) = (command.sources(), command.reads_and_writes());
        // Asked first: a batch that is refused between the two has spoiled what it should have written.
        let keeps_flows = self.keeps_flows();
        let spoiled = if self.submitter.health().has_late_errors() {
            sources.iter().map(|window| window.block.storage().spoiled()).max().unwrap_or(0)
        } else {
            0
        };
        for window in &command.windows {
            self.note_use(&window.block);
        }
        for window in writes {
            let storage = window.block.storage();
            if keeps_flows {
                let flow = |read: &Window| Flows::One(Flow::new(read.block.storage(), storage));
                self.flows.extend(sources.iter().map(flow));
            }
            storage.spoil(spoiled);
            if storage.write(self.number) {
                self.written.push(Arc::clone(storage));
            }
        }
    }

    /// Whether the open batch has to remember what its commands read and write: a batch before it may yet be refused, or was
    /// refused when the open batch had begun, and then what is made of that batch's outputs is stale.
    fn keeps_flows(&self) -> bool {
        self.submitter.has_thread() || self.submitter.has_deferred() || !self.flows.is_empty()
    }

    fn note_use(&mut self, block: &Block) {
        if block.is_shared() && !block.is_touched_by(self.number) {
            self.shared.push(Arc::clone(block.storage()));
        }
        block.touch(self.number);
    }

    /// Notes that the caller has got a block's buffer, which the batch may use already.
    pub(crate) fn note_shared(&mut self, block: &Block) {
        if block.is_touched_by(self.number) {
            self.shared.push(Arc::clone(block.storage()));
        }
    }

    /// Records a copy to a read-back buffer and submits everything; `then` follows.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn read_back(
        &mut self,
        block: &Block,
        offset: u64,
        staging: &wgpu::Buffer,
        bytes: u64,
        then: Then,
    ) -> BackendResult<Ticket> {
        self.submitter.health().check()?;
        self.note_use(block);
        self.encoder().copy_buffer_to_buffer(block.buffer(), offset, staging, 0, bytes);
        Ok(self.hand_over(vec![then], false))
    }

    /// Records something else than a dispatch, such as a timestamp, after what is recorded. What follows stays in its
    /// batch, as far as that has room.
    pub(crate) fn encode(&mut self, record: impl FnOnce(&mut wgpu::CommandEncoder)) {
        record(self.encoder());
        self.stays_together = true;
    }

    /// Submits what is recorded.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn submit(&mut self) -> BackendResult<()> {
        self.submit_then(Vec::new())
    }

    /// Submits what is recorded, and lets `then` follow.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn submit_then(&mut self, then: Vec<Then>) -> BackendResult<()> {
        self.submitter.health().check()?;
        if self.early.is_some() || self.encoder.is_some() || !then.is_empty() {
            self.hand_over(then, false);
        }
        Ok(())
    }

    /// Submits what is recorded, as more follows. Nobody waits for it yet, so that it may be deferred.
    fn next_batch(&mut self) -> BackendResult<()> {
        self.submitter.health().check()?;
        if self.early.is_some() || self.encoder.is_some() {
            self.hand_over(Vec::new(), self.commands.all >= self.defer_from);
        }
        Ok(())
    }

    fn hand_over(&mut self, then: Vec<Then>, may_defer: bool) -> Ticket {
        // Whoever only flushes would never give anything back.
        self.retire();
        if self.pass.is_some() {
            // wgpu checks what the pass consists of, and has the driver record it, when the encoder is finished.
            let _span = tracing::trace_span!("end_pass", commands = self.commands.all).entered();
            self.pass = None;
        }
        let params = self.params.close();
        let staging = self.staging.as_mut().map(StagingRing::close).unwrap_or_default();
        let buffer = params.as_ref().map(|filled| filled.buffer().clone());
        let batch = Batch {
            number: self.number,
            encoders: [self.early.take(), self.encoder.take()].into_iter().flatten().collect(),
            params,
            written: std::mem::take(&mut self.written),
            shared: std::mem::take(&mut self.shared),
            flows: std::mem::take(&mut self.flows),
            then,
        };
        self.number += 1;
        self.commands = Count::default();
        self.stays_together = false;
        let ticket = self.submitter.submit(batch, may_defer);
        self.flight.push_back(InFlight { ticket: ticket.clone(), params: buffer, staging });
        ticket
    }

    /// The batch after which everything submitted so far has finished.
    pub(crate) fn newest(&self) -> Option<Ticket> {
        self.flight.back().map(|batch| batch.ticket.clone())
    }

    fn oldest(&self) -> Option<Ticket> {
        self.flight.front().map(|batch| batch.ticket.clone())
    }

    /// Gives back what batches held that have finished, and what bind groups of dropped buffers hold.
    pub(crate) fn retire(&mut self) {
        if self.has_dropped.load(Ordering::Acquire) {
            self.forget_bind_groups();
        }
        let finished = self.submitter.progress().finished();
        while let Some(batch) = self.flight.pop_front_if(|batch| batch.ticket.batch <= finished) {
            if let Some(params) = batch.params {
                self.params.recycle(params);
            }
            if let Some(ring) = &self.staging {
                batch.staging.into_iter().for_each(|buffer| ring.recycle(buffer));
            }
        }
    }

    /// Forgets the bind groups, which keep buffers alive.
    pub(crate) fn forget_bind_groups(&mut self) {
        self.has_dropped.store(false, Ordering::Release);
        self.groups.clear();
    }

    /// Has the queue copy uploads, as in a browser.
    #[cfg(test)]
    pub(crate) fn upload_by_queue(&mut self) {
        self.staging = None;
    }

    /// Has every batch deferred that nobody waits for.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn defer_all(&mut self) {
        self.defer_from = 0;
    }

    /// Commands that weren't handed over.
    #[cfg(test)]
    pub(crate) fn recorded(&self) -> usize {
        self.commands.all
    }

    /// Batches that were handed over and may hold memory.
    #[cfg(test)]
    pub(crate) fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// Cached bind groups and bytes of upload staging.
    pub(crate) fn cache_sizes(&self) -> (usize, usize) {
        (self.groups.len(), self.staging.as_ref().map_or(0, StagingRing::bytes))
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
