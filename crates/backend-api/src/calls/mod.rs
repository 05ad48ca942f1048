//! Operations as data: recorded as they are called, and called again later, on any backend.

mod owned;

use std::fmt;
use std::future::ready;
use std::sync::{Mutex, PoisonError};

use crate::{BackendError, BackendFuture, BackendResult, Command, ComputeBackend, Operation, forward};

/// An operation with its arguments, which calls it on the backend that it is given.
type Call = Box<dyn Fn(&dyn ComputeBackend) -> BackendResult<()> + Send + Sync>;

/// Operations in the order in which they were called, which is all that a backend without command buffers of
/// its own needs for [`capture`](ComputeBackend::capture).
#[derive(Default)]
pub struct Calls(Vec<Call>);

impl Calls {
    /// Records what `record` calls on the backend that it is handed. Each operation is first called on
    /// `checker`, whose error is the operation's; every other call is [`Capturing`](BackendError::Capturing).
    ///
    /// # Errors
    /// What `record` returns.
    pub fn record(
        checker: &dyn ComputeBackend,
        record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<Self> {
        let recording = Recording { checker, calls: Mutex::default() };
        record(&recording)?;
        Ok(Self(recording.calls.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Calls the operations on `backend`, in order.
    ///
    /// # Errors
    /// The error of the first operation that fails, after which none is called.
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

/// The error of a call that can't be captured.
const fn capturing<T>(op: &'static str) -> BackendResult<T> {
    Err(BackendError::Capturing { op })
}

impl ComputeBackend for Recording<'_> {
    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        self.checker.execute(op, command)?;
        let call = owned::call(op, command);
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        Ok(())
    }

    forward!(this => *this.checker; name, is_initialized, capabilities, device_info, memory_stats);

    fn init(&mut self) -> BackendResult<()> {
        capturing("init")
    }

    fn synchronize(&self) -> BackendResult<()> {
        capturing("synchronize")
    }

    fn alloc(&self, _bytes: usize) -> BackendResult<u64> {
        capturing("alloc")
    }

    fn alloc_zeroed(&self, _bytes: usize) -> BackendResult<u64> {
        capturing("alloc_zeroed")
    }

    fn free(&self, _ptr: u64) -> BackendResult<()> {
        capturing("free")
    }

    fn view(&self, _ptr: u64, _byte_offset: usize, _byte_len: usize) -> BackendResult<u64> {
        capturing("view")
    }

    fn copy_htod(&self, _dst: u64, _src: &[u8]) -> BackendResult<()> {
        capturing("copy_htod")
    }

    fn copy_dtoh(&self, _dst: &mut [u8], _src: u64) -> BackendResult<()> {
        capturing("copy_dtoh")
    }

    fn copy_dtoh_async<'a>(&'a self, _dst: &'a mut [u8], _src: u64) -> BackendFuture<'a, ()> {
        Box::pin(ready(capturing("copy_dtoh_async")))
    }

    fn synchronize_async(&self) -> BackendFuture<'_, ()> {
        Box::pin(ready(capturing("synchronize_async")))
    }

    fn warm_up_async<'a>(&'a self, _operations: &'a [Operation<'a>]) -> BackendFuture<'a, ()> {
        Box::pin(ready(capturing("warm_up_async")))
    }

    fn capture(
        &self,
        _record: &mut dyn FnMut(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> BackendResult<u64> {
        capturing("capture")
    }

    fn replay(&self, _graph: u64) -> BackendResult<()> {
        capturing("replay")
    }

    fn free_graph(&self, _graph: u64) -> BackendResult<()> {
        capturing("free_graph")
    }

    fn trim(&self) -> BackendResult<usize> {
        capturing("trim")
    }

    fn set_memory_budget(&self, _bytes: Option<usize>) -> BackendResult<()> {
        capturing("set_memory_budget")
    }
}
