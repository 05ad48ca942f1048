//! How long a call may wait.

use std::time::Duration;

use backend_api::{BackendError, BackendResult};

use crate::sync::Instant;

/// The time at which a call gives up waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    op: &'static str,
    start: Instant,
    timeout: Duration,
}

impl Deadline {
    /// `timeout` from now on.
    pub(crate) fn new(op: &'static str, timeout: Duration) -> Self {
        Self { op, start: Instant::now(), timeout }
    }

    /// The time left.
    ///
    /// # Errors
    /// [`Timeout`](BackendError::Timeout) if there is none.
    pub(crate) fn remaining(&self) -> BackendResult<Duration> {
        let left = self.timeout.checked_sub(self.start.elapsed());
        left.filter(|left| !left.is_zero()).ok_or_else(|| self.error())
    }

    /// The error of a call that has waited too long.
    pub(crate) fn error(&self) -> BackendError {
        BackendError::Timeout { op: self.op, waited: self.start.elapsed() }
    }

    pub(crate) fn op(&self) -> &'static str {
        self.op
    }
}
