//! What runs outside of tests of interleavings.

pub(crate) use std::sync::atomic;
#[cfg(not(target_family = "wasm"))]
pub(crate) use std::sync::mpsc;
pub(crate) use std::thread;
pub(crate) use std::thread_local;

pub(crate) use parking_lot::{Condvar, Mutex, ReentrantMutex, ReentrantMutexGuard, RwLock, RwLockReadGuard};
pub(crate) use web_time::Instant;

/// Lets wgpu make the callbacks of what has finished, or waits for that.
pub(crate) fn poll(device: &wgpu::Device, kind: wgpu::PollType) -> Result<wgpu::PollStatus, wgpu::PollError> {
    device.poll(kind)
}

/// Does what a callback of wgpu is for.
pub(crate) fn deliver(work: impl FnOnce()) {
    work();
}
