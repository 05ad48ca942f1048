//! Waiting for the answer of a wgpu callback or for a batch, with a thread blocked or not.

use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use backend_api::BackendResult;

use super::{Deadline, Signal, Submitter, Ticket};
use crate::device::{GlLock, Progress};
use crate::sync::Instant;

/// The longest that a thread sleeps between two looks at the device.
const LOOK: Duration = Duration::from_millis(50);

/// The longest sleep of a thread that has to poll the device itself.
const SHORT: Duration = Duration::from_micros(50);

impl<T> Signal<T> {
    /// Blocks for a value whose cause has already happened: its callback may still be on its way, in another
    /// thread that polls the device at the same time.
    ///
    /// # Errors
    /// [`DeviceLost`](backend_api::BackendError::DeviceLost),
    /// [`Timeout`](backend_api::BackendError::Timeout).
    pub(crate) fn settle(&self, submitter: &Submitter, deadline: &Deadline) -> BackendResult<T> {
        let patience = if submitter.has_thread() { LOOK } else { SHORT };
        loop {
            let mut state = self.inner.state.lock();
            if let Some(value) = state.value.take() {
                return Ok(value);
            }
            submitter.health().check()?;
            self.inner.changed.wait_for(&mut state, deadline.remaining()?.min(patience));
            drop(state);
            submitter.poll();
        }
    }

    /// Waits for the value without blocking: see [`until`].
    ///
    /// # Errors
    /// [`DeviceLost`](backend_api::BackendError::DeviceLost).
    pub(crate) async fn wait(&self, submitter: &Submitter, gl_lock: &GlLock) -> BackendResult<T> {
        until(submitter, gl_lock, |nap, waker| {
            let mut state = self.inner.state.lock();
            if state.value.is_none()
                && let Some(nap) = nap
            {
                self.inner.changed.wait_for(&mut state, nap);
            }
            let value = state.value.take();
            if value.is_none() && cfg!(target_family = "wasm") {
                state.waker = Some(waker.clone());
            }
            value
        })
        .await
    }
}

/// Waits until a batch has finished, without blocking: see [`until`].
///
/// # Errors
/// [`DeviceLost`](backend_api::BackendError::DeviceLost).
pub(crate) async fn batch_finished(
    ticket: &Ticket,
    submitter: &Submitter,
    gl_lock: &GlLock,
) -> BackendResult<()> {
    let progress = submitter.progress();
    let has_finished = |progress: &Progress| progress.finished() >= ticket.batch;
    until(submitter, gl_lock, |nap, waker| {
        if let Some(nap) = nap {
            progress.wait(has_finished, nap);
        }
        let is_over = if cfg!(target_family = "wasm") {
            progress.wake(has_finished, waker)
        } else {
            has_finished(progress)
        };
        is_over.then_some(())
    })
    .await
}

/// Waits until `look` finds something, without blocking. `look` is told how long it may sleep, and whom to wake in a page.
///
/// In a browser the page's event loop makes the callbacks. Elsewhere each poll of the future polls the
/// device and asks to be polled again, which also notices a loss, and sleeps for a moment within, so that
/// no core is kept busy by waiting: see [`Submitter::nap`].
///
/// # Errors
/// [`DeviceLost`](backend_api::BackendError::DeviceLost).
async fn until<T>(
    submitter: &Submitter,
    gl_lock: &GlLock,
    mut look: impl FnMut(Option<Duration>, &Waker) -> Option<T>,
) -> BackendResult<T> {
    let start = Instant::now();
    poll_fn(|context| {
        if cfg!(not(target_family = "wasm")) {
            let _guard = gl_lock.lock();
            submitter.submit_deferred(u64::MAX);
            submitter.poll();
        }
        if let Some(found) = look(submitter.nap(start.elapsed()), context.waker()) {
            return Poll::Ready(Ok(found));
        }
        if let Err(lost) = submitter.health().check() {
            return Poll::Ready(Err(lost));
        }
        if cfg!(not(target_family = "wasm")) {
            // A callback may come while some thread holds the recorder's lock, where a waker that calls the
            // backend would wait for itself: the waker is called here instead, and the future polled again.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await
}
