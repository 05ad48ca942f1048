//! From batches to the queue, and waiting for them.

use std::sync::Arc;
use std::time::Duration;

use backend_api::{BackendError, BackendResult, DeviceKind};

use super::Deadline;
use super::batch::Batch;
#[cfg(not(target_family = "wasm"))]
use super::deferred::Deferred;
use super::port::{Port, Ticket};
#[cfg(not(target_family = "wasm"))]
use super::worker::Worker;
use crate::device::{GuardedDevice, Health, Progress};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{self, Instant, bound, thread};

/// The longest that a wait goes without looking whether the device is lost.
const LOOK: Duration = Duration::from_millis(50);

/// The time between two polls for what wgpu can't wait for.
const SHORT: Duration = Duration::from_millis(1);

/// The shortest and the longest sleep of a future between two polls. Its executor's thread sleeps with it.
const NAP: Duration = Duration::from_micros(50);
const LONG_NAP: Duration = Duration::from_micros(500);

/// How long a wait polls at least before it blocks, unless that is set: longer than a small batch and its read-back
/// take, so that their wait needn't wake a blocked thread.
const SPIN: Duration = Duration::from_micros(bound(200, 0) as u64);

/// How long it polls for a GPU on a host that has cores to spare: a thread that sleeps is woken late, on an H200's host by
/// 0.2 to 0.3 ms, which is a tenth of what a model of some size takes.
const LONG_SPIN: Duration = Duration::from_micros(bound(20_000, 0) as u64);

/// Cores of a host that can spare one.
const SPARE_CORES: usize = 4;

/// How long a wait polls before it blocks, unless that is set. A software adapter works on the cores that polling would take
/// from it.
pub(crate) fn usual_spin(kind: DeviceKind, cores: usize) -> Duration {
    match kind {
        DeviceKind::Cpu | DeviceKind::SoftwareAdapter => SPIN,
        _ if cores < SPARE_CORES => SPIN,
        _ => LONG_SPIN,
    }
}

/// Which thread submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submits {
    /// The one that calls.
    Caller,
    /// The one that calls, but for batches that are deferred: a thread submits these, or the call that waits for one.
    Deferred,
    /// One of its own.
    Worker,
}

/// Submits batches in order and knows when they have finished.
#[derive(Debug)]
pub(crate) struct Submitter {
    port: Port,
    spin_nanos: AtomicU64,
    /// On devices whose driver works off a submission before it returns: the thread that submits, so that no
    /// call waits longer than its timeout.
    #[cfg(not(target_family = "wasm"))]
    worker: Option<Worker>,
    #[cfg(not(target_family = "wasm"))]
    deferred: Option<Deferred>,
}

impl Submitter {
    /// Submits from the thread that calls, or from others: see [`Submits`].
    pub(crate) fn new(
        device: &GuardedDevice,
        queue: &wgpu::Queue,
        health: &Arc<Health>,
        progress: &Arc<Progress>,
        #[cfg_attr(target_family = "wasm", expect(unused_variables, reason = "a page has one thread"))]
        submits: Submits,
    ) -> Self {
        let port = Port {
            device: device.clone(),
            queue: queue.clone(),
            health: Arc::clone(health),
            progress: Arc::clone(progress),
        };
        Self {
            #[cfg(not(target_family = "wasm"))]
            worker: if submits == Submits::Worker { Worker::start(&port) } else { None },
            #[cfg(not(target_family = "wasm"))]
            deferred: (submits == Submits::Deferred).then(|| Deferred::new(&port)),
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
        if let Some(deferred) = &self.deferred {
            deferred.set_patience(patience);
        }
    }

    /// How long a future that has waited for some time sleeps before it is polled again. It polls without a
    /// pause as long as a short wait takes, unless that took the CPU from the thread which submits.
    pub(super) fn nap(&self, waited: Duration) -> Option<Duration> {
        if cfg!(target_family = "wasm") {
            return None;
        }
        // Its executor has more to do than to wait for this one.
        let spin = Duration::from_nanos(self.spin_nanos.load(Ordering::Relaxed)).min(SPIN);
        let sleeps = self.has_thread() || waited >= spin;
        sleeps.then(|| (waited / 16).clamp(NAP, LONG_NAP))
    }

    /// Hands over a batch, which may be deferred if nobody waits for it. Errors are kept for the next read or synchronize:
    /// the calls that recorded the work have returned.
    pub(crate) fn submit(
        &self,
        batch: Batch,
        #[cfg_attr(target_family = "wasm", expect(unused_variables, reason = "a page has one thread"))]
        may_defer: bool,
    ) -> Ticket {
        let ticket = Ticket::of(batch.number);
        #[cfg(not(target_family = "wasm"))]
        if let Some(worker) = &self.worker {
            worker.submit(batch, &self.port);
            return ticket;
        }
        #[cfg(not(target_family = "wasm"))]
        if let Some(deferred) = self.deferred.as_ref().filter(|deferred| may_defer || deferred.is_pending()) {
            deferred.push(batch, &ticket.index);
            return ticket;
        }
        self.port.submit(batch, &ticket.index);
        ticket
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
            if self.submit_deferred(ticket.batch) {
                _ = deadline.remaining()?;
                continue;
            }
            self.poll();
            if has_finished(progress) {
                return Ok(());
            }
            let left = deadline.remaining()?;
            let waited = start.elapsed();
            if waited < spin {
                // Threads that have work come before one that has waited for some time.
                if waited < SPIN {
                    std::hint::spin_loop();
                } else {
                    thread::yield_now();
                }
                continue;
            }
            match ticket.index.get() {
                Some(index) => self.poll_for(index, left)?,
                None => progress.wait(has_finished, left.min(SHORT)),
            }
        }
    }

    /// Blocks until a batch is in the queue, where another thread may submit it.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout); [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn wait_until_submitted(&self, ticket: &Ticket, deadline: &Deadline) -> BackendResult<()> {
        let Port { progress, health, .. } = &self.port;
        let is_submitted = |progress: &Progress| progress.submitted() >= ticket.batch;
        while (self.has_thread() || self.has_deferred()) && !is_submitted(progress) {
            health.check()?;
            let left = deadline.remaining()?;
            if !self.submit_deferred(ticket.batch) {
                progress.wait(is_submitted, left.min(LOOK));
            }
        }
        health.check()
    }

    /// Whether a batch has been deferred and not been submitted.
    pub(crate) fn has_deferred(&self) -> bool {
        #[cfg(not(target_family = "wasm"))]
        return self.deferred.as_ref().is_some_and(Deferred::is_pending);
        #[cfg(target_family = "wasm")]
        false
    }

    /// Keeps everybody from submitting deferred batches until it is dropped.
    #[cfg(test)]
    pub(crate) fn hold_deferred(&self) -> super::deferred::SubmitGuard<'_> {
        self.deferred.as_ref().expect("batches may be deferred").hold()
    }

    /// Submits the first deferred batch, unless it is behind `last` or another thread is at one; whether it has.
    pub(super) fn submit_deferred(&self, _last: u64) -> bool {
        #[cfg(not(target_family = "wasm"))]
        return self.deferred.as_ref().is_some_and(|deferred| deferred.submit_next(_last));
        #[cfg(target_family = "wasm")]
        false
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

    /// Has the queue copy bytes, behind all that was submitted by the thread that calls.
    pub(super) fn write(&self, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        self.port.queue.write_buffer(buffer, offset, bytes);
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
                self.port.health.lose_submission(&error);
                self.port.health.check()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;

    /// A submitter beside the backend's own, which tells its batches to nobody else.
    fn submitter(backend: &WebGpuBackend, submits: Submits) -> Submitter {
        let (device, queue) = (backend.guarded_device(), backend.queue().unwrap());
        Submitter::new(device, queue, &Health::detached(), &Arc::default(), submits)
    }

    fn kind<T>(result: BackendResult<T>) -> Result<(), backend_api::ErrorKind> {
        result.map(|_| ()).map_err(|error| error.kind())
    }

    #[test]
    fn waits_for_gpus_poll_longer_where_cores_are_spare() {
        let spin = |kind, cores| usual_spin(kind, cores);
        assert_eq!([3, 4].map(|cores| spin(DeviceKind::DiscreteGpu, cores)), [SPIN, LONG_SPIN]);
        assert_eq!(spin(DeviceKind::IntegratedGpu, 8), LONG_SPIN);
        assert_eq!([DeviceKind::Cpu, DeviceKind::SoftwareAdapter].map(|kind| spin(kind, 8)), [SPIN; 2]);
    }

    #[test]
    fn a_future_polls_without_a_pause_as_long_as_a_short_wait_takes() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let micros = Duration::from_micros;
        let caller = submitter(&backend, Submits::Caller);
        assert!(!caller.has_thread());
        assert_eq!(
            [0, 199, 200, 3200, 1_000_000].map(|waited| caller.nap(micros(waited))),
            [None, None, Some(NAP), Some(micros(200)), Some(LONG_NAP)]
        );
        caller.set_spin(Duration::ZERO);
        assert_eq!(caller.nap(Duration::ZERO), Some(NAP));
        let threaded = submitter(&backend, Submits::Worker);
        assert!(threaded.has_thread());
        assert_eq!(threaded.nap(Duration::ZERO), Some(NAP));
    }

    #[test]
    fn a_wait_ends_when_its_batch_has_finished_and_not_before() {
        use backend_api::ErrorKind;

        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let (short, long) = (Duration::from_millis(20), Duration::from_secs(60));
        for submits in [Submits::Caller, Submits::Deferred, Submits::Worker] {
            for spin in [Duration::ZERO, Duration::MAX] {
                let submitter = submitter(&backend, submits);
                submitter.set_spin(spin);
                for number in 1..4 {
                    let ticket = submitter.submit(Batch { number, ..Batch::default() }, number != 2);
                    assert_eq!(ticket.batch, number);
                    submitter.wait_until_submitted(&ticket, &Deadline::new("test", long)).unwrap();
                    submitter.wait(&ticket, &Deadline::new("test", long)).unwrap();
                    assert_eq!(
                        (submitter.progress().submitted(), submitter.progress().finished()),
                        (number, number)
                    );
                    // Nothing is left to wait for.
                    submitter.wait(&ticket, &Deadline::new("test", Duration::ZERO)).unwrap();
                }
                let never = Ticket::of(4);
                let wait = |timeout| submitter.wait(&never, &Deadline::new("test", timeout));
                assert_eq!(
                    [Duration::ZERO, short].map(|timeout| kind(wait(timeout))),
                    [Err(ErrorKind::Timeout); 2]
                );
                let submitted = submitter.wait_until_submitted(&never, &Deadline::new("test", short));
                // Whoever calls has submitted.
                assert_eq!(
                    kind(submitted),
                    if submitter.has_thread() { Err(ErrorKind::Timeout) } else { Ok(()) }
                );
                submitter.confirm(&Deadline::new("test", long)).unwrap();
                submitter.refresh().unwrap();
                submitter.health().lose("test");
                let deadline = Deadline::new("test", long);
                let lost = [
                    kind(submitter.wait(&never, &deadline)),
                    kind(submitter.wait_until_submitted(&never, &deadline)),
                    kind(submitter.confirm(&deadline)),
                    kind(submitter.refresh()),
                ];
                assert_eq!(lost, [Err(ErrorKind::DeviceLost); 4]);
            }
        }
    }
}
