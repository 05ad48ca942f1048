//! The answer of a wgpu callback. How it is waited for is in `wait.rs`.

use std::sync::Arc;
use std::task::Waker;

use crate::sync::{Condvar, Mutex};

/// A value that a callback sets once.
#[derive(Debug)]
pub(crate) struct Signal<T> {
    pub(super) inner: Arc<Inner<T>>,
}

#[derive(Debug)]
pub(super) struct Inner<T> {
    pub(super) state: Mutex<State<T>>,
    pub(super) changed: Condvar,
}

#[derive(Debug)]
pub(super) struct State<T> {
    pub(super) value: Option<T>,
    pub(super) waker: Option<Waker>,
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T> Default for Signal<T> {
    fn default() -> Self {
        let state = Mutex::new(State { value: None, waker: None });
        Self { inner: Arc::new(Inner { state, changed: Condvar::new() }) }
    }
}

impl<T> Signal<T> {
    /// Sets the value and wakes who waits for it.
    pub(crate) fn set(&self, value: T) {
        let waker = {
            let mut state = self.inner.state.lock();
            state.value = Some(value);
            state.waker.take()
        };
        self.inner.changed.notify_all();
        // An executor may poll within: a page holds no lock while its event loop calls back, and elsewhere no
        // waker is kept.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The value, if it is there.
    #[cfg(test)]
    pub(crate) fn take(&self) -> Option<T> {
        self.inner.state.lock().value.take()
    }
}
