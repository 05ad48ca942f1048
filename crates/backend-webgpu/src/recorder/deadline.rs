//! How long a call may wait.

use std::time::Duration;

use backend_api::{BackendError, BackendResult};

use crate::sync::Instant;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The time at which a call gives up waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    op: &'static str,
    start: Instant,
    /// What earlier waits of the call took.
    before: Duration,
    timeout: Duration,
}

impl Deadline {
    /// `timeout` from now on.
    pub(crate) fn new(op: &'static str, timeout: Duration) -> Self {
        Self { op, start: Instant::now(), before: Duration::ZERO, timeout }
    }

    /// The time left.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout) if there is none.
    pub(crate) fn remaining(&self) -> BackendResult<Duration> {
        let left = self.timeout.checked_sub(self.waited());
        left.filter(|left| !left.is_zero()).ok_or_else(|| self.error())
    }

    /// The error of a call that has waited too long.
    pub(crate) fn error(&self) -> BackendError {
        BackendError::Timeout { op: self.op, waited: self.waited() }
    }

    fn waited(&self) -> Duration {
        self.before + self.start.elapsed()
    }

    pub(crate) fn op(&self) -> &'static str {
        self.op
    }
}

/// The time that a call has waited. It may wait for memory, for staging buffers and for room in the queue, each more
/// than once, and all of that together no longer than the timeout. What it does between, such as compiling a kernel,
/// doesn't count.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    nanoseconds: AtomicU64,
}

impl Waits {
    /// A wait that has yet to begin.
    pub(crate) fn wait(&self, op: &'static str, timeout: Duration) -> Wait<'_> {
        Wait { op, timeout, waits: self, deadline: None }
    }

    /// The time that is left to wait.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout) if there is none.
    pub(crate) fn remaining(&self, op: &'static str, timeout: Duration) -> BackendResult<Duration> {
        self.wait(op, timeout).deadline().remaining()
    }
}

/// A wait of a call. It begins when its deadline is first asked for, and lasts until it is dropped.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    op: &'static str,
    timeout: Duration,
    waits: &'a Waits,
    deadline: Option<Deadline>,
}

impl Wait<'_> {
    /// When the call gives up, with what it has waited before.
    pub(crate) fn deadline(&mut self) -> Deadline {
        *self.deadline.get_or_insert_with(|| {
            let before = Duration::from_nanos(self.waits.nanoseconds.load(Ordering::Relaxed));
            Deadline { before, ..Deadline::new(self.op, self.timeout) }
        })
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if let Some(deadline) = self.deadline {
            let waited = u64::try_from(deadline.waited().as_nanos()).unwrap_or(u64::MAX);
            self.waits.nanoseconds.store(waited, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn waits_of_a_call_share_its_timeout() {
        const TIMEOUT: Duration = Duration::from_millis(40);
        let waits = Waits::default();
        let mut first = waits.wait("test", TIMEOUT);
        let deadline = first.deadline();
        thread::sleep(Duration::from_millis(25));
        assert!(deadline.remaining().is_ok());
        drop(first);
        // Work between two waits.
        let mut second = waits.wait("test", TIMEOUT);
        thread::sleep(Duration::from_millis(50));
        let left = second.deadline().remaining().unwrap();
        assert!(left <= Duration::from_millis(15), "{left:?} are left of 40 ms after 25");
        thread::sleep(Duration::from_millis(20));
        drop(second);
        // A wait that never begins.
        drop(waits.wait("test", TIMEOUT));
        let mut third = waits.wait("test", TIMEOUT);
        let Err(BackendError::Timeout { op: "test", waited }) = third.deadline().remaining() else {
            panic!("there is time left");
        };
        assert!(waited >= TIMEOUT, "{waited:?}");
    }
}
