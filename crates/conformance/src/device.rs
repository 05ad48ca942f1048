//! A backend and how to wait for it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use backend_api::{BackendResult, ComputeBackend, Operation};

use crate::arena::Arena;

/// How reads wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    /// By blocking the thread.
    Blocking,
    /// By suspending the future.
    Async,
}

/// A backend that is read from in one of the two ways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device<'a> {
    pub(crate) backend: &'a dyn ComputeBackend,
    pub(crate) wait: Wait,
    /// Where operands are placed; in allocations of their own without one.
    pub(crate) arena: Option<&'a Arena>,
}

impl Device<'_> {
    /// The first `len` bytes behind `ptr`.
    pub(crate) async fn read(&self, ptr: u64, len: usize) -> BackendResult<Vec<u8>> {
        let mut bytes = vec![0; len];
        match self.wait {
            Wait::Blocking => self.backend.copy_dtoh(&mut bytes, ptr)?,
            Wait::Async => self.backend.copy_dtoh_async(&mut bytes, ptr).await?,
        }
        Ok(bytes)
    }

    /// Waits for everything called so far.
    pub(crate) async fn synchronize(&self) -> BackendResult<()> {
        match self.wait {
            Wait::Blocking => self.backend.synchronize(),
            Wait::Async => self.backend.synchronize_async().await,
        }
    }

    /// Warms the backend up. There is no blocking form; without an executor it is polled until it is done.
    pub(crate) async fn warm_up(&self, operations: &[Operation<'_>]) -> BackendResult<()> {
        let mut future = pin!(self.backend.warm_up_async(operations));
        match self.wait {
            Wait::Async => future.await,
            Wait::Blocking => loop {
                if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    return done;
                }
            },
        }
    }
}
