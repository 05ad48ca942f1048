//! No device closes while another opens or compiles.
//!
//! NVIDIA's driver 580.159 hangs where one thread destroys a device and another compiles for a second device
//! of the process, or asks which adapters there are, by Vulkan or by EGL: the one waits, with a lock that the
//! other wants, for a thread that wants a lock that the other has.

use std::time::Duration;

use crate::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(target_family = "wasm"))]
use crate::sync::{Instant, thread};
use crate::sync::{RwLock, RwLockReadGuard};

/// Read by those that open and compile, written by those that close.
#[cfg(not(feature = "shuttle"))]
static COMPILING: RwLock<()> = RwLock::new(());
#[cfg(feature = "shuttle")]
shuttle::lazy_static! {
    // One for each test.
    static ref COMPILING: RwLock<()> = RwLock::new(());
}

/// Keeps devices open until it is dropped. Whoever has it must not wait for another.
pub(crate) fn compiling() -> RwLockReadGuard<'static, ()> {
    COMPILING.read()
}

/// Keeps devices from being opened and from compiling until it is dropped, as closing one does.
#[cfg(all(test, not(target_family = "wasm")))]
pub(crate) fn closing() -> impl Sized {
    COMPILING.write()
}

/// A handle of a device that is dropped after all others, which closes the device. A buffer has one of its own, too: whoever
/// drops the device's last buffer closes the device, if nobody else has a handle of it.
#[derive(Debug)]
pub(crate) struct LastHandle {
    device: Option<wgpu::Device>,
    patience_ms: AtomicU64,
}

/// How long whoever closes keeps others from beginning to compile, again and again.
#[cfg(not(target_family = "wasm"))]
const LOCKED: Duration = Duration::from_millis(20);

/// The time in between.
#[cfg(not(target_family = "wasm"))]
const PAUSE: Duration = Duration::from_millis(1);

impl LastHandle {
    pub(crate) fn new(device: &wgpu::Device) -> Self {
        Self { device: Some(device.clone()), patience_ms: AtomicU64::new(u64::MAX) }
    }

    /// Has the device close in the background where others compile for longer than this after the drop.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn set_patience(&self, patience: Duration) {
        let milliseconds = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.patience_ms.store(milliseconds, Ordering::Relaxed);
    }
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        if let Some(device) = self.device.take() {
            close(device, Duration::from_millis(self.patience_ms.load(Ordering::Relaxed)));
        }
    }
}

/// A page has one thread, which doesn't compile now.
#[cfg(target_family = "wasm")]
fn close(device: wgpu::Device, _: Duration) {
    drop(device);
}

#[cfg(not(target_family = "wasm"))]
fn close(device: wgpu::Device, patience: Duration) {
    let Some(device) = close_within(device, patience) else { return };
    tracing::warn!("others compile for long; the device closes in the background");
    // Where the system has no more threads, it closes at once.
    let later = move || close_within(device, Duration::MAX);
    _ = thread::Builder::new().name("webgpu-close".to_owned()).spawn(later);
}

/// Closes a device when nobody compiles; gives it back if somebody does all the time.
#[cfg(not(target_family = "wasm"))]
fn close_within(device: wgpu::Device, patience: Duration) -> Option<wgpu::Device> {
    let start = Instant::now();
    loop {
        if let Some(_alone) = COMPILING.try_write_for(LOCKED) {
            drop(device);
            return None;
        }
        if start.elapsed() >= patience {
            return Some(device);
        }
        thread::sleep(PAUSE);
    }
}
