//! A device for as long as a backend has it, and the calls that use it.

#[cfg(not(target_family = "wasm"))]
use std::io;
use std::sync::Arc;
use std::time::Duration;

use backend_api::BackendResult;

#[cfg(not(target_family = "wasm"))]
use crate::cache::Cache;
use crate::context::Context;
use crate::device::GlGuard;
use crate::kernels::Variant;
use crate::ops::{Capture, OpContext, State, Trial};
#[cfg(not(target_family = "wasm"))]
use crate::ops::{Conflict, Tuning};
#[cfg(not(target_family = "wasm"))]
use crate::sync::thread;

/// An opened device. Closing it waits for its work no longer than a call would.
#[derive(Debug)]
pub(crate) struct Opened {
    context: OpContext,
    /// Whether the device closes with this; the opened device of a dry run or a capture belongs to
    /// another.
    #[cfg_attr(target_family = "wasm", expect(dead_code, reason = "nothing waits in a page"))]
    closes: bool,
}

impl Opened {
    pub(crate) fn new(device: Context) -> Self {
        Self::with_state(device, State::default())
    }

    pub(crate) fn with_state(device: Context, state: State) -> Self {
        #[cfg(not(target_family = "wasm"))]
        if let Some(text) = device.cache.as_ref().and_then(Cache::tuning) {
            Tuning::of(&state).learn_text(&device.gpu.info, &text, Conflict::KeepOwn);
        }
        Self { context: OpContext::new(device, state), closes: true }
    }

    /// Writes what has been compiled and measured into the cache's folder, if there is one.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn save_cache(&self) -> io::Result<()> {
        let (Context { cache, gpu, .. }, tuning) = (self.device(), Tuning::of(self.state()));
        let Some(cache) = cache else { return Ok(()) };
        if tuning.is_empty() {
            return cache.save(None);
        }
        // Another process may have found something since.
        if let Some(text) = cache.tuning() {
            tuning.learn_text(&gpu.info, &text, Conflict::KeepOwn);
        }
        cache.save(Some(&tuning.text(&gpu.info)))
    }

    pub(crate) fn device(&self) -> &Context {
        &self.context.device
    }

    #[cfg(any(not(target_family = "wasm"), feature = "test-hooks"))]
    pub(crate) fn state(&self) -> &State {
        &self.context.state
    }

    /// On this device, one whose calls launch nothing.
    pub(crate) fn dry_run(&self) -> Self {
        Self { context: self.context.dry_run(), closes: false }
    }

    /// Makes the self-test of a variant on this device, which has its own time to wait; whether it came to a result.
    pub(crate) fn try_variant(&self, variant: &Variant, trial: Trial) -> bool {
        self.context.dry_run().try_variant(variant, trial)
    }

    /// A [dry run](Self::dry_run) that takes variants for right that have not been tested on this device.
    pub(crate) fn untested_dry_run(&self) -> Self {
        Self { context: self.context.untested_dry_run(), closes: false }
    }

    /// On this device, one whose calls are kept in `capture`.
    pub(crate) fn capturing(&self, capture: &Arc<Capture>) -> Self {
        Self { context: self.context.capturing(capture), closes: false }
    }

    /// Whether the device isn't known to be lost. Who asks waits for no other thread.
    pub(crate) fn is_working(&self) -> bool {
        let device = self.device();
        match device.gl_lock.lock_within("is_initialized", Duration::ZERO) {
            Ok(_guard) => device.submitter.refresh().is_ok(),
            Err(_) => !device.gpu.health.is_lost(),
        }
    }

    /// Begins a call: locks OpenGL, and sees whether the device is lost.
    ///
    /// # Errors
    /// [`DeviceLost`](backend_api::BackendError::DeviceLost), [`Timeout`](backend_api::BackendError::Timeout)
    /// where another thread holds the lock.
    pub(crate) fn call(&self, op: &'static str) -> BackendResult<Call<'_>> {
        let device = self.device();
        let context = self.context.call();
        let guard = {
            // Waiting for the lock is one of the call's waits.
            let mut wait = context.waits().wait(op, device.timeout());
            if device.gl_lock.is_needed() {
                wait.deadline();
            }
            device.gl_lock.lock_within(op, device.timeout())?
        };
        device.submitter.refresh()?;
        device.gpu.health.witness();
        Ok(Call { context, _guard: guard })
    }
}

#[cfg(not(target_family = "wasm"))]
impl Drop for Opened {
    fn drop(&mut self) {
        let (op, device) = ("drop", self.device());
        if !self.closes {
            return;
        }
        let deadline = device.deadline(op);
        if let Err(error) = self.save_cache() {
            tracing::warn!(%error, "the cache isn't written");
        }
        device.close_within(device.timeout());
        if device.gpu.health.is_lost() {
            return;
        }
        let newest = device.recorder.lock().newest();
        let finished = device.gl_lock.lock_within(op, device.timeout()).and_then(|_guard| match newest {
            Some(newest) => device.submitter.wait(&newest, &deadline),
            None => Ok(()),
        });
        // The thread that submits has a handle too, which may wait for others' compilations before the last one does.
        let patience = deadline.remaining().unwrap_or_default() / 2;
        device.submitter.close_within(patience);
        device.close_within(patience);
        let Err(error) = finished else { return };
        // The driver waits for its work before it lets go of a device. That may take as long as it wants
        // elsewhere.
        tracing::warn!(%error, "the device is still at work; it closes in the background");
        let device = Arc::clone(&self.context.device);
        _ = thread::Builder::new().name("webgpu-close".to_owned()).spawn(move || drop(device));
    }
}

/// A call in progress, which holds the lock of OpenGL until it ends.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) context: OpContext,
    _guard: GlGuard<'a>,
}

impl Call<'_> {
    pub(crate) fn device(&self) -> &Context {
        &self.context.device
    }
}

#[cfg(all(test, not(target_family = "wasm")))]
mod tests {
    use std::time::Duration;

    use backend_api::DeviceInfo;

    use super::*;
    use crate::device::{self, GlLock, Selector};

    #[test]
    fn a_call_that_has_waited_for_the_lock_may_wait_for_less() {
        const TIMEOUT: Duration = Duration::from_secs(60);
        const LOCKED: Duration = Duration::from_millis(100);
        let found = pollster::block_on(device::enumerate());
        let (instance, adapter, info) = device::find(found, &Selector::default()).expect("a WebGPU adapter");
        let limits = adapter.limits();
        let gpu = pollster::block_on(device::open(instance, adapter, info, limits, false)).unwrap();
        let mut device = Context::new(gpu).unwrap();
        // Threads wait for each other, as at a device of OpenGL.
        device.gl_lock = GlLock::new(&DeviceInfo { api: "Gl".to_owned(), ..device.gpu.info.clone() });
        let opened = Opened::new(device);
        let guard = opened.device().gl_lock.lock();
        std::thread::scope(|scope| {
            let call = scope.spawn(|| {
                let call = opened.call("test").unwrap();
                call.context.waits().remaining("test", TIMEOUT).unwrap()
            });
            std::thread::sleep(2 * LOCKED);
            drop(guard);
            let left = call.join().unwrap();
            assert!(left < TIMEOUT - LOCKED, "{left:?} of {TIMEOUT:?} are left");
        });
    }
}
