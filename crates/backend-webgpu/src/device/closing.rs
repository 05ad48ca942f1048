//! No device closes while another compiles.
//!
//! NVIDIA's driver 580.159 hangs where one thread destroys a device and another compiles for a second device
//! of the process: the one waits, with a lock that the other wants, for a thread that wants a lock that the
//! other has.

use crate::sync::{RwLock, RwLockReadGuard};

/// Read by those that compile, written by those that close.
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

/// A handle of a device that is dropped after all others, which closes the device.
#[derive(Debug)]
pub(crate) struct LastHandle(Option<wgpu::Device>);

impl LastHandle {
    pub(crate) fn new(device: &wgpu::Device) -> Self {
        Self(Some(device.clone()))
    }
}

impl Drop for LastHandle {
    fn drop(&mut self) {
        let _alone = COMPILING.write();
        self.0 = None;
    }
}
