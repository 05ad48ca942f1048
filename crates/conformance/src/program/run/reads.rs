//! Asynchronous reads that are under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use backend_api::{BackendError, BackendResult, ComputeBackend};

use super::super::invoke::invoke;
use super::super::{Call, Slot};
use super::Thread;

type Reading<'b> = Pin<Box<dyn Future<Output = BackendResult<Vec<u8>>> + Send + 'b>>;

/// The reads of one thread that were begun and not finished.
pub(super) struct Reads<'b> {
    backend: &'b dyn ComputeBackend,
    pending: Vec<Pending<'b>>,
}

/// A read, and what it must give: what was there when it was begun.
struct Pending<'b> {
    reading: Reading<'b>,
    call: Call,
    expected: BackendResult<Vec<(u8, u8)>>,
    /// Whether work was lost that the read may still tell of, though a later call was told already.
    in_jeopardy: bool,
}

impl<'b> Reads<'b> {
    pub(super) const fn new(backend: &'b dyn ComputeBackend) -> Self {
        Self { backend, pending: Vec::new() }
    }

    pub(super) fn begin(&mut self, thread: &mut Thread<'_>, src: Slot, bytes: usize) -> Result<(), String> {
        let call = Call::Read { src, bytes };
        let checked = invoke(&call, &thread.model, &|slot| thread.own(slot));
        let expected = checked.map(|_| thread.model.bytes(thread.own(src), bytes));
        let (backend, ptr) = (self.backend, thread.real(src));
        let reading = Box::pin(async move {
            let mut read = vec![0xa5; bytes];
            backend.copy_dtoh_async(&mut read, ptr).await.map(|()| read)
        });
        self.pending.push(Pending { reading, call, expected, in_jeopardy: false });
        self.poll(thread, self.pending.len() - 1)
    }

    pub(super) fn poll(&mut self, thread: &mut Thread<'_>, nth: usize) -> Result<(), String> {
        let Some(at) = nth.checked_rem(self.pending.len()) else { return Ok(()) };
        match self.pending[at].reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(()),
            Poll::Ready(result) => {
                let pending = self.pending.remove(at);
                pending.judge(thread, result)
            }
        }
    }

    pub(super) fn finish(&mut self, thread: &mut Thread<'_>, nth: usize) -> Result<(), String> {
        let Some(at) = nth.checked_rem(self.pending.len()) else { return Ok(()) };
        let mut pending = self.pending.remove(at);
        let result = pollster::block_on(pending.reading.as_mut());
        pending.judge(thread, result)
    }

    pub(super) fn cancel(&mut self, nth: usize) -> Result<(), String> {
        if let Some(at) = nth.checked_rem(self.pending.len()) {
            drop(self.pending.remove(at));
        }
        Ok(())
    }

    /// Notes that work was lost and the thread was told of it: a read that is under way is told too.
    pub(super) fn endanger(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.in_jeopardy = true);
    }

    pub(super) fn finish_all(&mut self, thread: &mut Thread<'_>) -> Result<(), String> {
        while !self.pending.is_empty() {
            self.finish(thread, 0).map_err(|why| format!("a read under way at the end: {why}"))?;
        }
        Ok(())
    }
}

impl Pending<'_> {
    fn judge(self, thread: &mut Thread<'_>, result: BackendResult<Vec<u8>>) -> Result<(), String> {
        let Self { call, expected, in_jeopardy, .. } = self;
        let why = match (result, expected) {
            (Ok(read), Ok(known)) => thread.compare(&read, &known),
            (Err(BackendError::Driver { .. }), _) if in_jeopardy => Ok(()),
            (Err(error), _) if thread.is_excused(&call, &error) => Ok(()),
            (Err(got), Err(expected)) if got.kind() == expected.kind() => Ok(()),
            (got, expected) => {
                Err(format!("it gave {:?}, the contract says {:?}", got.map(drop), expected.map(drop)))
            }
        };
        why.map_err(|why| format!("{call:?}, asynchronously: {why}"))
    }
}
