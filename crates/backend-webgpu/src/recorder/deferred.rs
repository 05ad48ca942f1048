//! Deferred submission: a thread submits batches of many commands that others follow, or the call that waits for them, if it
//! comes first.
//!
//! When an encoder is finished, wgpu checks its commands and has the driver record them, which takes longer than encoding
//! them. Calls leave that to the thread and go on with the next batch. Whoever waits needn't wait for the thread to wake: it
//! submits what the thread has not begun with.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::batch::{Batch, Then};
use super::port::{Index, Port};
use super::submit_thread::SubmitThread;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

/// Batches in the order in which they will be submitted, and the thread that does it. The thread ends when this is dropped
/// and no batch is left.
#[derive(Debug)]
pub(super) struct Deferred {
    queue: Arc<Queue>,
    /// Started with the first batch; `None` within if the system has no more threads.
    thread: OnceLock<Option<SubmitThread>>,
}

#[derive(Debug)]
struct Queue {
    port: Port,
    /// The number of the newest batch that was deferred.
    newest: AtomicU64,
    state: Mutex<State>,
    /// Told when the thread has something to do.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    batches: VecDeque<(Box<Batch>, Index)>,
    /// Whether somebody is at a batch that was the first.
    is_submitting: bool,
    is_closing: bool,
}

impl Deferred {
    pub(super) fn new(port: &Port) -> Self {
        let queue = Queue {
            port: port.clone(),
            newest: AtomicU64::new(0),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        };
        Self { queue: Arc::new(queue), thread: OnceLock::new() }
    }

    /// Whether a batch has yet to be submitted, so that the next one has to be deferred too.
    pub(super) fn is_pending(&self) -> bool {
        self.queue.port.progress.submitted() < self.queue.newest.load(Ordering::Acquire)
    }

    /// Adds a batch, which is submitted after those before it.
    pub(super) fn push(&self, batch: Batch, index: &Index) {
        let number = batch.number;
        self.queue.newest.store(number, Ordering::Release);
        self.queue.state.lock().batches.push_back((Box::new(batch), Arc::clone(index)));
        if self.thread.get_or_init(|| self.start()).is_some() {
            self.queue.changed.notify_all();
        } else {
            while self.submit_next(number) {}
        }
    }

    /// Submits the first batch, unless it is behind `last` or somebody else is at one; whether it has. No more than one, as
    /// whoever waits has a deadline and others may add batches as fast.
    pub(super) fn submit_next(&self, last: u64) -> bool {
        self.is_pending() && self.queue.submit_next(last)
    }

    /// How long a drop waits for the thread.
    pub(super) fn set_patience(&self, patience: Duration) {
        if let Some(Some(thread)) = self.thread.get() {
            thread.set_patience(patience);
        }
    }

    /// Keeps everybody from submitting until it is dropped.
    #[cfg(test)]
    pub(super) fn hold(&self) -> SubmitGuard<'_> {
        while std::mem::replace(&mut self.queue.state.lock().is_submitting, true) {
            std::thread::yield_now();
        }
        SubmitGuard { queue: &self.queue, is_over: true }
    }

    fn start(&self) -> Option<SubmitThread> {
        let queue = Arc::clone(&self.queue);
        SubmitThread::start("webgpu-deferred", &self.queue.port, move || queue.run())
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        self.queue.state.lock().is_closing = true;
        self.queue.changed.notify_all();
    }
}

impl Queue {
    fn submit_next(&self, last: u64) -> bool {
        let (batch, index) = {
            let mut state = self.state.lock();
            if state.is_submitting {
                return false;
            }
            let Some(first) = state.first(last) else { return false };
            state.is_submitting = true;
            first
        };
        let mut guard = SubmitGuard { queue: self, is_over: false };
        self.port.submit(*batch, &index);
        guard.is_over = true;
        true
    }

    /// Submits until there are no more batches and none will come.
    fn run(&self) {
        loop {
            if self.submit_next(u64::MAX) {
                continue;
            }
            let mut state = self.state.lock();
            if state.is_submitting || state.batches.is_empty() {
                if state.is_closing {
                    return;
                }
                self.changed.wait(&mut state);
            }
        }
    }
}

impl State {
    /// Takes the first batch, if it is up to `last`.
    fn first(&mut self, last: u64) -> Option<(Box<Batch>, Index)> {
        self.batches.pop_front_if(|(batch, _)| batch.number <= last)
    }
}

/// The right to submit. Where the driver or wgpu panics within, nobody knows what became of the batch.
pub(crate) struct SubmitGuard<'a> {
    queue: &'a Queue,
    is_over: bool,
}

impl Drop for SubmitGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.is_submitting = false;
        if self.is_over {
            if !state.batches.is_empty() {
                self.queue.changed.notify_all();
            }
            return;
        }
        let batches = std::mem::take(&mut state.batches);
        drop(state);
        self.queue.port.health.lose("a submission has panicked");
        batches.into_iter().flat_map(|(batch, _)| batch.then).for_each(Then::fail);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::WebGpuBackend;
    use crate::device::Health;
    use crate::recorder::Signal;

    fn port(backend: &WebGpuBackend) -> Port {
        Port {
            device: backend.guarded_device().clone(),
            queue: backend.queue().unwrap().clone(),
            health: Health::detached(),
            progress: Arc::default(),
        }
    }

    fn push(deferred: &Deferred, number: u64) {
        deferred.push(Batch { number, ..Batch::default() }, &Index::default());
    }

    fn submitted(deferred: &Deferred) -> u64 {
        deferred.queue.port.progress.submitted()
    }

    #[test]
    fn the_thread_submits_what_nobody_waits_for() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let deferred = Deferred::new(&port(&backend));
        assert!(!deferred.is_pending());
        let held = deferred.hold();
        (1..=5).for_each(|number| push(&deferred, number));
        assert!(!deferred.submit_next(5), "another has the guard");
        assert!(deferred.is_pending() && submitted(&deferred) == 0);
        drop(held);
        let start = Instant::now();
        while deferred.is_pending() {
            assert!(start.elapsed() < Duration::from_secs(60));
            std::thread::yield_now();
        }
        assert_eq!(submitted(&deferred), 5);
    }

    #[test]
    fn a_call_submits_no_more_than_it_waits_for() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let deferred = Deferred::new(&port(&backend));
        assert!(deferred.thread.set(None).is_ok(), "the system has no more threads");
        let held = deferred.hold();
        (1..=3).for_each(|number| push(&deferred, number));
        drop(held);
        for number in 1..=2 {
            assert!(deferred.submit_next(2));
            assert_eq!(submitted(&deferred), number, "one at a time");
        }
        assert!(deferred.is_pending() && !deferred.submit_next(2), "nothing is left up to that");
        // Without a thread, the call submits.
        push(&deferred, 4);
        assert!(submitted(&deferred) == 4 && !deferred.is_pending());
    }

    #[test]
    fn what_is_left_at_the_end_is_submitted() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let port = port(&backend);
        let deferred = Deferred::new(&port);
        (1..=9).for_each(|number| push(&deferred, number));
        drop(deferred);
        assert_eq!(port.progress.submitted(), 9);
    }

    #[test]
    fn a_panic_of_the_driver_is_a_loss() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let port = port(&backend);
        let deferred = Deferred::new(&port);
        let mut held = deferred.hold();
        let done = Signal::default();
        let then = vec![Then::Tell(done.clone())];
        deferred.push(Batch { number: 1, then, ..Batch::default() }, &Index::default());
        held.is_over = false;
        drop(held);
        assert!(port.health.is_lost());
        assert!(done.take().is_some(), "nobody waits for what will not be submitted");
    }
}
