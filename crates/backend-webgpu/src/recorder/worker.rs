//! A thread that submits, for drivers that work off a submission before they return from it.
//!
//! Mesa's lavapipe is one: while its queue is busy, every other use of the queue waits too. So on such a
//! device one thread submits and polls, and all others wait for it no longer than they want to.

use std::sync::Arc;
use std::time::Duration;

use backend_api::BackendResult;

use super::Deadline;
use super::batch::{Batch, Then};
use super::submitter::Port;
use crate::device::LastHandle;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};
use crate::sync::{self, Mutex, thread};

/// The longest wait for the device before the thread looks for another job.
const PATIENCE: Duration = Duration::from_millis(20);

/// How long whoever closes the device waits for the thread to end, unless that is set to longer.
const ENDING: Duration = Duration::from_millis(500);

/// The thread, as others see it. It ends when this is dropped and its last job is done.
#[derive(Debug)]
pub(super) struct Worker {
    /// `None` once no more jobs come.
    jobs: Option<Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
    /// Disconnected when the thread has let go of the device.
    ended: Mutex<Receiver<()>>,
    /// Jobs that it has not finished.
    open: Arc<AtomicUsize>,
    /// How long a drop waits for the thread to end.
    patience_ms: AtomicU64,
}

#[derive(Debug)]
enum Job {
    Submit(Box<Batch>),
    Poll,
    /// A poll, and an answer when its callbacks have been made.
    Answer(SyncSender<()>),
}

impl Worker {
    /// `None` if the system has no more threads.
    pub(super) fn start(port: &Port) -> Option<Self> {
        let (jobs, queue) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let open = Arc::new(AtomicUsize::new(0));
        let (port, count) = (port.clone(), Arc::clone(&open));
        // The thread may be the last to have a handle of the device.
        let last = LastHandle::new(&port.device);
        let work = move || {
            run(&port, &queue, &count);
            drop(port);
            drop(last);
            drop(end);
        };
        let started = thread::Builder::new().name("webgpu-submit".to_owned()).spawn(work);
        let thread = Some(started.ok()?);
        let patience_ms = AtomicU64::new(0);
        Some(Self { jobs: Some(jobs), thread, ended: Mutex::new(ended), open, patience_ms })
    }

    pub(super) fn submit(&self, batch: Batch, port: &Port) {
        if let Err(mpsc::SendError(Job::Submit(batch))) = self.send(Job::Submit(Box::new(batch))) {
            port.health.lose("the thread that submits has ended");
            batch.then.into_iter().for_each(Then::fail);
        }
    }

    /// Asks for a poll, unless the thread is at work and will poll anyway.
    pub(super) fn poll(&self) {
        if self.open.load(Ordering::Acquire) == 0 {
            // A thread that has ended is noticed with the next batch.
            _ = self.send(Job::Poll);
        }
    }

    /// Has the device polled, and waits until all callbacks have been made.
    ///
    /// # Errors
    /// [`Timeout`](backend_api::BackendError::Timeout).
    pub(super) fn poll_and_wait(&self, deadline: &Deadline) -> BackendResult<()> {
        let (answer, answered) = mpsc::sync_channel(1);
        _ = self.send(Job::Answer(answer));
        match answered.recv_timeout(deadline.remaining()?) {
            Err(RecvTimeoutError::Timeout) => Err(deadline.error()),
            // A thread that has ended is noticed with the next batch.
            Ok(()) | Err(RecvTimeoutError::Disconnected) => Ok(()),
        }
    }

    /// Has a drop wait for the thread for so long, and a little in any case: it closes the device when nobody compiles.
    pub(super) fn set_patience(&self, patience: Duration) {
        let milliseconds = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.patience_ms.store(milliseconds, Ordering::Relaxed);
    }

    fn send(&self, job: Job) -> Result<(), mpsc::SendError<Job>> {
        let Some(jobs) = &self.jobs else { return Err(mpsc::SendError(job)) };
        self.open.fetch_add(1, Ordering::AcqRel);
        jobs.send(job)
    }
}

impl Drop for Worker {
    /// Waits for the thread, unless the driver keeps it. A process that ends while a thread closes a device
    /// takes the driver's own state from under it. Where a callback drops the backend in the thread itself, the thread
    /// ends after it.
    fn drop(&mut self) {
        self.jobs = None;
        let Some(thread) = self.thread.take() else { return };
        if thread.thread().id() == thread::current().id() {
            return;
        }
        let patience = ENDING.max(Duration::from_millis(self.patience_ms.load(Ordering::Relaxed)));
        if self.ended.lock().recv_timeout(patience) == Err(RecvTimeoutError::Disconnected) {
            _ = thread.join();
        }
    }
}

fn run(port: &Port, jobs: &Receiver<Job>, open: &AtomicUsize) {
    let mut newest = 0;
    let mut index = None;
    loop {
        let is_working = port.progress.finished() < newest && !port.health.is_lost();
        let job = if is_working {
            match jobs.try_recv() {
                Ok(job) => Some(job),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => return,
            }
        } else {
            let Ok(job) = jobs.recv() else { return };
            Some(job)
        };
        match job {
            Some(Job::Submit(batch)) => {
                newest = batch.number;
                index = port.submit(*batch);
                _ = sync::poll(&port.device, wgpu::PollType::Poll);
                open.fetch_sub(1, Ordering::AcqRel);
            }
            Some(Job::Poll) => {
                _ = sync::poll(&port.device, wgpu::PollType::Poll);
                open.fetch_sub(1, Ordering::AcqRel);
            }
            Some(Job::Answer(answer)) => {
                _ = sync::poll(&port.device, wgpu::PollType::Poll);
                _ = answer.send(());
                open.fetch_sub(1, Ordering::AcqRel);
            }
            None => {
                let wait = wgpu::PollType::Wait { submission_index: index.clone(), timeout: Some(PATIENCE) };
                if let Err(error @ wgpu::PollError::WrongSubmissionIndex(..)) = sync::poll(&port.device, wait)
                {
                    port.health.lose(&error.to_string());
                }
            }
        }
    }
}
