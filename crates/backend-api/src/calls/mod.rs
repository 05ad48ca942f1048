//! Operations as data: recorded as they are called, and called again later, on any backend.
//!
//! [`Call`] is an operation with its arguments, [`Calls`] several of them in order. An [`Intercepted`] backend
//! hands each operation that is called on it to an [`Intercept`], which decides what becomes of it:
//! [`Calls::record`] has it checked and keeps it, which is all that a backend without command buffers of its
//! own needs for [`capture`](ComputeBackend::capture).

mod intercepted;
mod owned;

use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::{BackendError, BackendResult, ComputeBackend};

pub use intercepted::{Intercept, Intercepted};

/// An operation with its arguments, which calls it on the backend that it is given.
pub type Call = Box<dyn Fn(&dyn ComputeBackend) -> BackendResult<()> + Send + Sync>;

/// Operations in the order in which they were called.
#[derive(Default)]
pub struct Calls(Vec<Call>);

impl Calls {
    /// Records what `record` calls on the backend that it is handed. Each operation is first called on
    /// `checker`, whose error is the operation's.
    ///
    /// # Errors
    /// What `record` returns.
    pub fn record(
        checker: &dyn ComputeBackend,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<Self> {
        let recording = Intercepted(Recording { checker, calls: Mutex::default() });
        record(&recording)?;
        Ok(Self(recording.0.calls.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Calls the operations on `backend`, in order.
    ///
    /// # Errors
    /// That of the first operation that fails, after which none is called.
    pub fn replay(&self, backend: &dyn ComputeBackend) -> BackendResult<()> {
        self.0.iter().try_for_each(|call| call(backend))
    }

    /// The number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no operation.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("len", &self.len()).finish()
    }
}

/// Keeps the operations that pass the checks of another backend.
struct Recording<'a> {
    checker: &'a dyn ComputeBackend,
    calls: Mutex<Vec<Call>>,
}

impl fmt::Debug for Recording<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("checker", &self.checker).finish_non_exhaustive()
    }
}

impl Intercept for Recording<'_> {
    fn backend(&self) -> &dyn ComputeBackend {
        self.checker
    }

    fn operation(&self, call: Call) -> BackendResult<()> {
        call(self.checker)?;
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        Ok(())
    }

    fn other(&self, op: &'static str) -> BackendResult<&dyn ComputeBackend> {
        Err(BackendError::Capturing { op })
    }
}
