//! From batches to the queue, and waiting for them.

use std::sync::Arc;
use std::time::Duration;

use backend_api::{BackendError, BackendResult};

use super::Deadline;
use super::batch::{Batch, Flows, Then};
#[cfg(not(target_family = "wasm"))]
use super::worker::Worker;
use crate::device::{Health, Progress, guarded};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{self, Instant, bound};

/// The longest that a wait goes without looking whether the device is lost.
const LOOK: Duration = Duration::from_millis(50);

/// The time between two polls for what wgpu can't wait for.
const SHORT: Duration = Duration::from_millis(1);

/// The shortest and the longest sleep of a future between two polls. Its executor's thread sleeps with it.
const NAP: Duration = Duration::from_micros(50);
const LONG_NAP: Duration = Duration::from_micros(500);

/// How long a wait polls before it blocks, unless that is set: longer than a small batch and its read-back
/// take, so that their wait needn't wake a blocked thread.
const SPIN: Duration = Duration::from_micros(bound(200, 0) as u64);

/// Submits batches in order and knows when they have finished.
#[derive(Debug)]
pub(crate) struct Submitter {
    port: Port,
    spin_nanos: AtomicU64,
    /// On devices whose driver works off a submission before it returns: the thread that submits, so that no
    /// call waits longer than its timeout.
    #[cfg(not(target_family = "wasm"))]
    worker: Option<Worker>,
}

/// The queue with what has to be told of it.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) health: Arc<Health>,
    pub(super) progress: Arc<Progress>,
}

/// A batch that was handed over, to wait for.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub(crate) batch: u64,
    /// Unknown where a thread of its own submits, and for a batch without commands.
    index: Option<wgpu::SubmissionIndex>,
}

impl Ticket {
    /// Nothing to wait for but a callback.
    pub(super) fn finished() -> Self {
        Self { batch: 0, index: None }
    }
}

impl Submitter {
    /// Submits from the thread that calls, or from one of its own.
    pub(crate) fn new(
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        health: &Arc<Health>,
        progress: &Arc<Progress>,
        #[cfg_attr(target_family = "wasm", expect(unused_variables, reason = "a page has one thread"))]
        has_thread: bool,
    ) -> Self {
        let port = Port {
            device: device.clone(),
            queue: queue.clone(),
            health: Arc::clone(health),
            progress: Arc::clone(progress),
        };
        Self {
            #[cfg(not(target_family = "wasm"))]
            worker: if has_thread { Worker::start(&port) } else { None },
            port,
            spin_nanos: AtomicU64::new(SPIN.as_nanos() as u64),
        }
    }

    /// Sets how long a wait polls the device before it blocks.
    pub(crate) fn set_spin(&self, time: Duration) {
        self.spin_nanos.store(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long a drop waits for the thread that submits.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn close_within(&self, patience: Duration) {
        if let Some(worker) = &self.worker {
            worker.set_patience(patience);
        }
    }

    /// How long a future that has waited for some time sleeps before it is polled again. It polls without a
    /// pause as long as a blocking call would, unless that took the CPU from the thread which submits.
    pub(super) fn nap(&self, waited: Duration) -> Option<Duration> {
        if cfg!(target_family = "wasm") {
            return None;
        }
        let spin = Duration::from_nanos(self.spin_nanos.load(Ordering::Relaxed));
        let sleeps = self.has_thread() || waited >= spin;
        sleeps.then(|| (waited / 16).clamp(NAP, LONG_NAP))
    }

    /// Hands over a batch. Errors are kept for the next read or synchronize: the calls that recorded the work
    /// have returned.
    pub(crate) fn submit(&self, batch: Batch) -> Ticket {
        let number = batch.number;
        #[cfg(not(target_family = "wasm"))]
        if let Some(worker) = &self.worker {
            worker.submit(batch, &self.port);
            return Ticket { batch: number, index: None };
        }
        Ticket { batch: number, index: self.port.submit(batch) }
    }

    /// Blocks until a batch has finished.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout); [`DeviceLost`](BackendError::DeviceLost);
    /// [`WouldBlock`](BackendError::WouldBlock) in a browser.
    pub(crate) fn wait(&self, ticket: &Ticket, deadline: &Deadline) -> BackendResult<()> {
        if cfg!(target_family = "wasm") {
            return Err(BackendError::WouldBlock { op: deadline.op() });
        }
        let _span = tracing::trace_span!("wait", op = deadline.op()).entered();
        // Some drivers say nothing of a loss while they are at work.
        self.wait_until_finished(ticket, deadline)
            .map_err(|error| self.health().explain(&self.port.device, error))
    }

    fn wait_until_finished(&self, ticket: &Ticket, deadline: &Deadline) -> BackendResult<()> {
        let Port { progress, health, .. } = &self.port;
        let has_finished = |progress: &Progress| progress.finished() >= ticket.batch;
        let (start, spin) = (Instant::now(), Duration::from_nanos(self.spin_nanos.load(Ordering::Relaxed)));
        loop {
            health.check()?;
            if has_finished(progress) {
                return Ok(());
            }
            if self.has_thread() {
                progress.wait(has_finished, deadline.remaining()?.min(LOOK));
                continue;
            }
            self.poll();
            if has_finished(progress) {
                return Ok(());
            }
            let left = deadline.remaining()?;
            if start.elapsed() < spin {
                std::hint::spin_loop();
                continue;
            }
            match &ticket.index {
                Some(index) => self.poll_for(index, left)?,
                None => progress.wait(has_finished, left.min(SHORT)),
            }
        }
    }

    /// Blocks until a batch is in the queue, where a thread of its own submits.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout); [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn wait_until_submitted(&self, ticket: &Ticket, deadline: &Deadline) -> BackendResult<()> {
        let Port { progress, health, .. } = &self.port;
        let is_submitted = |progress: &Progress| progress.submitted() >= ticket.batch;
        while self.has_thread() && !is_submitted(progress) {
            health.check()?;
            progress.wait(is_submitted, deadline.remaining()?.min(LOOK));
        }
        health.check()
    }

    /// Lets wgpu make the callbacks of what has finished.
    pub(crate) fn poll(&self) {
        #[cfg(not(target_family = "wasm"))]
        if let Some(worker) = &self.worker {
            return worker.poll();
        }
        _ = sync::poll(&self.port.device, wgpu::PollType::Poll);
    }

    /// Sees whether the device is lost now, where a thread of its own polls; elsewhere waits have polled.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), [`Timeout`](BackendError::Timeout).
    pub(crate) fn confirm(&self, _deadline: &Deadline) -> BackendResult<()> {
        #[cfg(not(target_family = "wasm"))]
        if let Some(worker) = &self.worker {
            worker.poll_and_wait(_deadline)?;
        }
        self.port.health.check()
    }

    /// Whether the device is lost, asked at times: see [`Health::is_due`].
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), for good.
    pub(crate) fn refresh(&self) -> BackendResult<()> {
        if self.port.health.is_due(self.has_thread()) {
            self.poll();
        }
        self.port.health.check()
    }

    /// Whether another thread makes wgpu's callbacks, so that nobody else needs to poll.
    pub(crate) fn has_thread(&self) -> bool {
        #[cfg(not(target_family = "wasm"))]
        return self.worker.is_some();
        #[cfg(target_family = "wasm")]
        false
    }

    pub(crate) fn health(&self) -> &Health {
        &self.port.health
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.port.progress
    }

    fn poll_for(&self, index: &wgpu::SubmissionIndex, timeout: Duration) -> BackendResult<()> {
        let wait = wgpu::PollType::Wait { submission_index: Some(index.clone()), timeout: Some(timeout) };
        match sync::poll(&self.port.device, wait) {
            Ok(_) | Err(wgpu::PollError::Timeout) => Ok(()),
            Err(error) => {
                // wgpu no longer knows the submission, which is how it answers after a loss.
                self.port.health.lose(&error.to_string());
                self.port.health.check()
            }
        }
    }
}

impl Port {
    /// Submits a batch; nothing if it has no commands, or if the driver refused them.
    pub(super) fn submit(&self, batch: Batch) -> Option<wgpu::SubmissionIndex> {
        let Batch { number, encoders, params, written, shared: _shared, flows, then } = batch;
        let _span = tracing::trace_span!("submit", batch = number).entered();
        let submitted = guarded(&self.device, || {
            if let Some(params) = &params {
                params.upload(&self.queue);
            }
            (!encoders.is_empty())
                .then(|| self.queue.submit(encoders.into_iter().map(wgpu::CommandEncoder::finish)))
        });
        let index = match submitted {
            Ok(index) => {
                if self.health.has_late_errors() {
                    flows.iter().for_each(Flows::spoil);
                }
                then.into_iter().for_each(|then| then.run(&self.queue));
                index
            }
            Err(error) => {
                // On a lost device anything may fail, and the loss is all that there is to say.
                if self.health.confirm(&self.device).is_ok() {
                    let error = self.health.report(error);
                    written.iter().for_each(|storage| storage.spoil(error));
                }
                then.into_iter().for_each(Then::fail);
                None
            }
        };
        // Also of a batch that was refused, which is over when those before it are.
        self.progress.submit(number);
        let progress = Arc::clone(&self.progress);
        self.queue.on_submitted_work_done(move || sync::deliver(move || progress.finish(number)));
        index
    }
}
