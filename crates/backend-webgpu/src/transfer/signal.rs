//! The answer of a wgpu callback, to be polled or awaited.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use backend_api::BackendResult;
use parking_lot::Mutex;

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

    /// The value, once it is there.
    pub(crate) fn take(&self) -> Option<T> {
        self.state.lock().value.take()
    }

    /// Waits for the value without blocking.
    ///
    /// In a browser the page's event loop makes the callback. Elsewhere callbacks run only when the device is polled,
    /// so each poll of the future polls the device and asks to be polled again.
    ///
    /// # Errors
    /// [`DeviceLost`](backend_api::BackendError::DeviceLost).
    pub(crate) async fn wait(&self, device: &wgpu::Device, health: &Health) -> BackendResult<T> {
        poll_fn(|context| {
            if cfg!(not(target_family = "wasm")) {
                _ = device.poll(wgpu::PollType::Poll);
            }
            let mut state = self.state.lock();
            if let Some(value) = state.value.take() {
                return Poll::Ready(Ok(value));
            }
            if let Err(lost) = health.check() {
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
