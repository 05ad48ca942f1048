//! Devices that close otherwise than with their backend: with a kernel of the caller's, or because they can't be used.

use std::time::Instant;

use super::*;
use crate::context::Context;
use crate::custom::KernelDesc;
use crate::device::{Gpu, Selector};

const KERNEL: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(1) fn main() { x[0] = 1.0; }";

/// Lower limits than any device's.
type Lower = fn(&mut wgpu::Limits);

/// The first adapter, opened with the limits that it has but for some.
fn opened(lower: Lower) -> Gpu {
    let found = pollster::block_on(device::enumerate());
    let (instance, adapter, info) = device::find(found, &Selector::default()).expect("a WebGPU adapter");
    let mut limits = adapter.limits();
    lower(&mut limits);
    pollster::block_on(device::open(instance, adapter, info, limits, false)).unwrap()
}

/// The code of a kernel that outlives its backend goes with what the backend remembers of it, which a thread that drops the
/// kernel meanwhile may be the last to have.
#[test]
fn no_kernel_closes_its_device_while_others_compile() {
    let backend = backend();
    let kernel = backend.kernel(&KernelDesc::new("kept", KERNEL)).unwrap();
    let (health, state) = {
        let call = backend.context("test").unwrap();
        (Arc::clone(&call.device().gpu.health), Arc::clone(&call.context.state))
    };
    drop(backend);
    assert!(Arc::strong_count(&health) > 1, "the code has the device");
    assert!(!returns_beside(device::compiling(), || drop(state)));
    assert_eq!(Arc::strong_count(&health), 1);
    assert_eq!(kernel.entry_point(), "main");
}

#[test]
fn a_kernel_that_outlives_its_backend_keeps_no_device_open() {
    let backend = backend();
    let kernel = backend.kernel(&KernelDesc::new("kept", KERNEL)).unwrap();
    let health = Arc::clone(&backend.context("test").unwrap().device().gpu.health);
    drop(backend);
    assert_eq!(Arc::strong_count(&health), 1);
    let other = self::backend();
    let ptr = other.alloc(4).unwrap();
    let launched = other.launch(&kernel, &[ptr], &[], [1; 3]);
    assert_eq!(launched.unwrap_err().kind(), ErrorKind::InvalidHandle, "another device's");
}

/// A device on which nothing can be allocated.
#[test]
fn a_device_that_cannot_be_used_closes_while_nobody_compiles() {
    let gpu = opened(|limits| (limits.max_buffer_size, limits.max_storage_buffer_binding_size) = (8, 8));
    let health = Arc::clone(&gpu.health);
    let compiling = device::compiling();
    let fails = thread::spawn(|| Context::new(gpu).map(drop));
    // Two callbacks of the device have it, and this: all else is gone before the device closes.
    let ends_with = |users: usize| {
        let start = Instant::now();
        while Arc::strong_count(&health) > users {
            assert!(start.elapsed() < Duration::from_secs(30), "{} users", Arc::strong_count(&health));
            thread::sleep(Duration::from_millis(1));
        }
    };
    ends_with(3);
    assert!(!fails.is_finished() && Arc::strong_count(&health) == 3);
    drop(compiling);
    assert_eq!(fails.join().unwrap().unwrap_err().kind(), ErrorKind::OutOfMemory);
    ends_with(1);
}

#[test]
fn a_device_that_is_refused_closes_while_nobody_compiles() {
    let Gpu { _instance: instance, adapter, device, queue, health, .. } =
        opened(|limits| limits.max_storage_buffers_per_shader_stage = 4);
    let theirs = (*device).clone();
    drop((device, health));
    let refused = move || {
        let refused = WebGpuBackend::from_wgpu(instance, adapter, theirs, queue);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
    };
    assert!(!returns_beside(device::compiling(), refused));
}
