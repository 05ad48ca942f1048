//! A backend on a device that does nothing but copy.

use std::ops::Deref;
use std::sync::Arc;

use backend_api::{BackendResult, ComputeBackend, DeviceKind};

use crate::WebGpuBackend;
use crate::context::Context;
use crate::device::{describe, open};
use crate::opened::Opened;
use crate::sync::thread::{self, JoinHandle};

/// Which thread submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submits {
    /// The one that calls, as on a GPU.
    Caller,
    /// The one that calls, when it holds the lock, as on OpenGL.
    Locked,
    /// A call that waits or a thread of the backend's own, as replays on a GPU.
    Deferred,
    /// One of the backend's own, as on a software adapter.
    Worker,
}

impl Submits {
    pub(super) const ALL: [Self; 4] = [Self::Caller, Self::Locked, Self::Deferred, Self::Worker];
}

/// A backend that threads share.
#[derive(Clone, Debug)]
pub(super) struct Rig(Arc<WebGpuBackend>);

impl Rig {
    pub(super) fn new(submits: Submits) -> Self {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::NOOP;
        descriptor.flags = wgpu::InstanceFlags::empty();
        descriptor.backend_options.noop.enable = true;
        let instance = wgpu::Instance::new(descriptor);
        let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))
            .expect("the adapter that wgpu has for tests");
        let mut info = describe(0, &adapter.get_info());
        info.kind = match submits {
            Submits::Caller | Submits::Locked | Submits::Deferred => DeviceKind::DiscreteGpu,
            Submits::Worker => DeviceKind::SoftwareAdapter,
        };
        if submits == Submits::Locked {
            info.api = "Gl".to_owned();
        }
        let limits = adapter.limits();
        let gpu = pollster::block_on(open(instance, adapter, info, limits, false)).unwrap();
        let context = Context::new(gpu).unwrap();
        if submits == Submits::Deferred {
            context.recorder.lock().defer_all();
        }
        Self(Arc::new(WebGpuBackend::over(Opened::new(context))))
    }

    /// A backend, and memory of so many bytes with the [`pattern`] of number 1.
    pub(super) fn holding(submits: Submits, len: usize) -> (Self, u64) {
        let rig = Self::new(submits);
        let ptr = rig.filled(1, len);
        (rig, ptr)
    }

    /// Memory with the [`pattern`] of this number.
    pub(super) fn filled(&self, of: usize, len: usize) -> u64 {
        let ptr = self.alloc(len).unwrap();
        self.copy_htod(ptr, &pattern(of, len)).unwrap();
        ptr
    }

    /// Asserts that no memory is left, once the device is done and the pool is emptied.
    pub(super) fn assert_gives_all_back(&self) {
        self.trim().unwrap();
        self.synchronize().unwrap();
        let stats = self.memory_stats();
        assert_eq!((stats.in_use, stats.pooled, stats.releasing), (0, 0, 0), "{stats:?}");
    }
}

impl Deref for Rig {
    type Target = WebGpuBackend;

    fn deref(&self) -> &WebGpuBackend {
        &self.0
    }
}

/// Starts a thread that has the backend.
pub(super) fn spawn(rig: &Rig, work: impl FnOnce(&Rig) + Send + 'static) -> JoinHandle<()> {
    let rig = rig.clone();
    thread::spawn(move || work(&rig))
}

pub(super) fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    // All have begun before one is waited for.
    let threads: Vec<_> = threads.into_iter().collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// Bytes that no other call of a scenario has.
pub(super) fn pattern(of: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (of * 41 + i * 7 + 1) as u8).collect()
}

pub(super) fn read(rig: &Rig, ptr: u64, len: usize) -> BackendResult<Vec<u8>> {
    let mut bytes = vec![0; len];
    rig.copy_dtoh(&mut bytes, ptr)?;
    Ok(bytes)
}
