//! Which batches have finished.

use std::task::Waker;
use std::time::Duration;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex};

/// The last batch that was submitted, and the last that has finished, told by the queue.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    submitted: AtomicU64,
    finished: AtomicU64,
    /// Taken to wait, so that nobody misses what is told between a look and the wait. It has whom to wake in a page, where
    /// nobody blocks.
    waiting: Mutex<Vec<Waker>>,
    changed: Condvar,
}

impl Progress {
    /// Every batch up to this one has finished.
    pub(crate) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// Every batch up to this one was given to the queue.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Acquire)
    }

    /// Notes that `batch` was given to the queue.
    pub(crate) fn submit(&self, batch: u64) {
        self.submitted.fetch_max(batch, Ordering::Release);
        self.tell();
    }

    /// Notes that `batch` and all before it have finished.
    pub(crate) fn finish(&self, batch: u64) {
        self.finished.fetch_max(batch, Ordering::Release);
        let waiting = std::mem::take(&mut *self.waiting.lock());
        self.changed.notify_all();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Has `waker` called when batches finish, unless `holds` already; whether it does.
    pub(crate) fn wake(&self, holds: impl Fn(&Self) -> bool, waker: &Waker) -> bool {
        let mut waiting = self.waiting.lock();
        let holds = holds(self);
        if !holds && !waiting.iter().any(|known| known.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        holds
    }

    /// Blocks until something changes, at most for `patience`, unless `holds` already.
    pub(crate) fn wait(&self, holds: impl Fn(&Self) -> bool, patience: Duration) {
        let mut waiting = self.waiting.lock();
        if !holds(self) {
            self.changed.wait_for(&mut waiting, patience);
        }
    }

    fn tell(&self) {
        drop(self.waiting.lock());
        self.changed.notify_all();
    }
}
