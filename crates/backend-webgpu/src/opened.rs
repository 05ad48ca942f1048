//! A device for as long as a backend has it, and the calls that use it.

use std::ops::Deref;
use std::sync::Arc;

use backend_api::BackendResult;

use crate::context::{Context, Parts};
use crate::device::GlGuard;
#[cfg(not(target_family = "wasm"))]
use crate::sync::thread;

/// An opened device. Closing it waits for its work no longer than a call would.
#[derive(Debug)]
pub(crate) struct Opened {
    context: Context,
    /// Whether the device closes with this; the opened device of a dry run belongs to another.
    #[cfg_attr(target_family = "wasm", expect(dead_code, reason = "nothing waits in a page"))]
    closes: bool,
}

impl Opened {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { context: Context::new(Arc::new(parts)), closes: true }
    }

    /// On this device, one whose calls launch nothing.
    pub(crate) fn dry_run(&self) -> Self {
        Self { context: self.context.dry_run(), closes: false }
    }

    /// Begins a call: takes a turn at the device, and sees whether it is lost.
    ///
    /// # Errors
    /// [`DeviceLost`](backend_api::BackendError::DeviceLost), [`Timeout`](backend_api::BackendError::Timeout)
    /// where another thread has its turn.
    pub(crate) fn call(&self, op: &'static str) -> BackendResult<Call<'_>> {
        let turn = self.gl_lock.lock_within(op, self.timeout())?;
        self.submitter.refresh()?;
        self.gpu.health.witness();
        Ok(Call { context: self.context.call(), _guard: turn })
    }
}

impl Deref for Opened {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

#[cfg(not(target_family = "wasm"))]
impl Drop for Opened {
    fn drop(&mut self) {
        let op = "drop";
        if !self.closes || self.gpu.health.is_lost() {
            return;
        }
        let deadline = self.deadline(op);
        let newest = self.recorder.lock().newest();
        let finished = self.gl_lock.lock_within(op, self.timeout()).and_then(|_guard| match newest {
            Some(newest) => self.submitter.wait(&newest, &deadline),
            None => Ok(()),
        });
        let Err(error) = finished else { return };
        // The driver waits for its work before it lets go of a device. That may take as long as it wants
        // elsewhere.
        tracing::warn!(%error, "the device is still at work; it closes in the background");
        let parts = Arc::clone(self.context.parts());
        _ = thread::Builder::new().name("webgpu-close".to_owned()).spawn(move || drop(parts));
    }
}

/// A call in progress, which has its turn at the device until it ends.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    context: Context,
    _guard: GlGuard<'a>,
}

impl Deref for Call<'_> {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}
