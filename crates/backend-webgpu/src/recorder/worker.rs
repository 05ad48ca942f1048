//! A thread that submits, for drivers that work off a submission before they return from it.
//!
//! Mesa's lavapipe is one: while its queue is busy, every other use of the queue waits too. So on such a
//! device one thread submits and polls, and all others wait for it no longer than they want to.

use std::sync::Arc;
use std::time::Duration;

use backend_api::BackendResult;

use super::Deadline;
use super::batch::{Batch, Then};
use super::port::{Index, Port};
use super::submit_thread::SubmitThread;
use crate::sync;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};

/// The longest wait for the device before the thread looks for another job.
const PATIENCE: Duration = Duration::from_millis(20);

/// The thread, as others see it. It ends when this is dropped and its last job is done.
#[derive(Debug)]
pub(super) struct Worker {
    /// Above the thread, which ends when no more jobs come, as fields are dropped in their order.
    jobs: Sender<Job>,
    thread: SubmitThread,
    /// Jobs that it has not finished.
    open: Arc<AtomicUsize>,
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
        let open = Arc::new(AtomicUsize::new(0));
        let (worker_port, count) = (port.clone(), Arc::clone(&open));
        let thread = SubmitThread::start("webgpu-submit", port, move || run(&worker_port, &queue, &count))?;
        Some(Self { jobs, thread, open })
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

    /// How long a drop waits for the thread.
    pub(super) fn set_patience(&self, patience: Duration) {
        self.thread.set_patience(patience);
    }

    fn send(&self, job: Job) -> Result<(), mpsc::SendError<Job>> {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.jobs.send(job)
    }
}

fn run(port: &Port, jobs: &Receiver<Job>, open: &AtomicUsize) {
    let mut newest = 0;
    let mut index = Index::default();
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
                index = Index::default();
                port.submit(*batch, &index);
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
                let wait =
                    wgpu::PollType::Wait { submission_index: index.get().cloned(), timeout: Some(PATIENCE) };
                if let Err(error @ wgpu::PollError::WrongSubmissionIndex(..)) = sync::poll(&port.device, wait)
                {
                    port.health.lose_submission(&error);
                }
            }
        }
    }
}
