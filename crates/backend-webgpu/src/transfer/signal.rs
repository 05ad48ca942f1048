//! The answer of a wgpu callback, to be polled or awaited.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use backend_api::{BackendError, BackendResult};
use parking_lot::Mutex;
use web_time::Instant;

use crate::context::Context;
use crate::device::Health;

/// A value that a callback sets once.
#[derive(Debug)]
pub(crate) struct Signal<T> {
    state: Arc<Mutex<State<T>>>,
}

#[derive(Debug)]
struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<T> Default for Signal<T> {
    fn default() -> Self {
        Self { state: Arc::new(Mutex::new(State { value: None, waker: None })) }
    }
}

impl<T> Signal<T> {
    /// Sets the value and wakes who waits for it.
    pub(crate) fn set(&self, value: T) {
        let mut state = self.state.lock();
        state.value = Some(value);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }

    /// Blocks for a value whose cause has already happened: its callback may still be on its way, in another thread
    /// that polls the device at the same time.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), [`Timeout`](BackendError::Timeout).
    pub(crate) fn settle(
        &self,
        op: &'static str,
        device: &wgpu::Device,
        health: &Health,
        timeout: Duration,
    ) -> BackendResult<T> {
        let start = Instant::now();
        loop {
            if let Some(value) = self.state.lock().value.take() {
                return Ok(value);
            }
            health.check()?;
            let waited = start.elapsed();
            if waited >= timeout {
                return Err(BackendError::Timeout { op, waited });
            }
            _ = device.poll(wgpu::PollType::Poll);
            std::thread::yield_now();
        }
    }

    /// Waits for the value without blocking.
    ///
    /// In a browser the page's event loop makes the callback. Elsewhere callbacks run only when the device is polled,
    /// so each poll of the future polls the device and asks to be polled again.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) async fn wait(&self, ctx: &Context) -> BackendResult<T> {
        poll_fn(|context| {
            if cfg!(not(target_family = "wasm")) {
                let _turn = ctx.gate.enter();
                _ = ctx.gpu.device.poll(wgpu::PollType::Poll);
            }
            let mut state = self.state.lock();
            if let Some(value) = state.value.take() {
                return Poll::Ready(Ok(value));
            }
            if let Err(lost) = ctx.gpu.health.check() {
                return Poll::Ready(Err(lost));
            }
            if cfg!(not(target_family = "wasm")) {
                context.waker().wake_by_ref();
            } else {
                state.waker = Some(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
