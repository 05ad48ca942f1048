//! A thread that submits, for drivers that work off a submission before they return from it.
//!
//! Mesa's lavapipe is one: while its queue is busy, every other use of the queue waits too. So on such a device one thread
//! submits and polls, and all others wait for it no longer than they want to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use backend_api::BackendResult;

use super::Deadline;
use super::batch::{Batch, Then};
use super::submitter::Port;
use crate::device::LastHandle;

/// The longest wait for the device before the thread looks for another job.
const PATIENCE: Duration = Duration::from_millis(20);

/// The longest wait for the thread to let go of the device, and the time between two looks.
const FAREWELL: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_micros(100);

/// The thread, as others see it. It ends when this is dropped and its last job is done.
#[derive(Debug)]
pub(super) struct Worker {
    jobs: Sender<Job>,
    thread: Option<JoinHandle<()>>,
    /// Jobs that it has not finished.
    open: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Job {
    Submit(Box<Batch>),
    Poll,
    /// A poll, and an answer when its callbacks have been made.
    Answer(SyncSender<()>),
    End,
}

impl Worker {
    /// `None` if the system has no more threads.
    pub(super) fn start(port: &Port) -> Option<Self> {
        let (jobs, queue) = mpsc::channel();
        let open = Arc::new(AtomicUsize::new(0));
        let (port, count) = (port.clone(), Arc::clone(&open));
        // The thread may be the last to have a handle of the device.
        let last = LastHandle::new(&port.device);
        let work = move || {
            run(&port, &queue, &count);
            drop(port);
            drop(last);
        };
        let started = thread::Builder::new().name("webgpu-submit".to_owned()).spawn(work);
        started.ok().map(|thread| Self { jobs, thread: Some(thread), open })
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

    fn send(&self, job: Job) -> Result<(), mpsc::SendError<Job>> {
        self.open.fetch_add(1, Ordering::AcqRel);
        self.jobs.send(job)
    }
}

impl Drop for Worker {
    /// Waits for the thread, unless its driver keeps it: one that closes a device unloads the driver, which must not happen
    /// while the process ends.
    fn drop(&mut self) {
        _ = self.send(Job::End);
        let (Some(thread), start) = (self.thread.take(), Instant::now()) else { return };
        while !thread.is_finished() && start.elapsed() < FAREWELL {
            thread::sleep(LOOK);
        }
        if thread.is_finished() {
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
                _ = port.device.poll(wgpu::PollType::Poll);
                open.fetch_sub(1, Ordering::AcqRel);
            }
            Some(Job::Poll) => {
                _ = port.device.poll(wgpu::PollType::Poll);
                open.fetch_sub(1, Ordering::AcqRel);
            }
            Some(Job::Answer(answer)) => {
                _ = port.device.poll(wgpu::PollType::Poll);
                _ = answer.send(());
                open.fetch_sub(1, Ordering::AcqRel);
            }
            Some(Job::End) => return,
            None => {
                let wait = wgpu::PollType::Wait { submission_index: index.clone(), timeout: Some(PATIENCE) };
                if let Err(error @ wgpu::PollError::WrongSubmissionIndex(..)) = port.device.poll(wait) {
                    port.health.lose(&error.to_string());
                }
            }
        }
    }
}
