//! Asynchronous reads that are under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use backend_api::{BackendResult, ComputeBackend};

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
        self.pending.push(Pending { reading, call, expected });
        self.poll(thread, self.pending.len() - 1)
    }

    pub(super) fn poll(&mut self, thread: &mut Thread<'_>, nth: usize) -> Result<(), String> {
        let Some(at) = nth.checked_rem(self.pending.len()) else { return Ok(()) };
        match self.pending[at].reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => Ok(()),
            Poll::Ready(result) => {
                let Pending { call, expected, .. } = self.pending.remove(at);
                judge(thread, &call, result, expected)
            }
        }
    }

    pub(super) fn finish(&mut self, thread: &mut Thread<'_>, nth: usize) -> Result<(), String> {
        let Some(at) = nth.checked_rem(self.pending.len()) else { return Ok(()) };
        let Pending { reading, call, expected } = self.pending.remove(at);
        judge(thread, &call, pollster::block_on(reading), expected)
    }

    pub(super) fn cancel(&mut self, nth: usize) -> Result<(), String> {
        if let Some(at) = nth.checked_rem(self.pending.len()) {
            drop(self.pending.remove(at));
        }
        Ok(())
    }

    pub(super) fn finish_all(&mut self, thread: &mut Thread<'_>) -> Result<(), String> {
        while !self.pending.is_empty() {
            self.finish(thread, 0).map_err(|why| format!("a read under way at the end: {why}"))?;
        }
        Ok(())
    }
}

fn judge(
    thread: &mut Thread<'_>,
    call: &Call,
    result: BackendResult<Vec<u8>>,
    expected: BackendResult<Vec<(u8, u8)>>,
) -> Result<(), String> {
    let why = match (result, expected) {
        (Ok(read), Ok(known)) => thread.compare(&read, &known),
        (Err(error), _) if thread.is_excused(call, &error) => Ok(()),
        (Err(got), Err(expected)) if got.kind() == expected.kind() => Ok(()),
        (got, expected) => {
            Err(format!("it gave {:?}, the contract says {:?}", got.map(drop), expected.map(drop)))
        }
    };
    why.map_err(|why| format!("{call:?}, asynchronously: {why}"))
}
