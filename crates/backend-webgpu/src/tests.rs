//! Faults that no caller can bring about: a kernel that doesn't build, and an error that the device reports late.

use backend_api::{BackendError, ComputeBackend, ErrorKind};

use crate::WebGpuBackend;
use crate::kernels::{KernelSource, Variant};

static BROKEN: KernelSource = KernelSource {
    name: "broken",
    text: "struct Params { n: u32 }\n@compute @workgroup_size(1) fn main() { let x: f32 = 1u; }",
    libs: &[],
    types: &[],
    constants: &[],
    reads: 0,
    writes: 0,
    params: &[],
};

fn backend() -> WebGpuBackend {
    WebGpuBackend::new()
        .expect("a WebGPU adapter; on Debian and Ubuntu: apt-get install mesa-vulkan-drivers libvulkan1")
}

#[test]
fn a_kernel_that_does_not_build_is_an_error_with_the_line() {
    let backend = backend();
    let context = backend.context("test").unwrap();
    let error = context.pipelines.get(&Variant::new(&BROKEN, [], [])).unwrap_err();
    let BackendError::Kernel { name, source, .. } = error else { panic!("not a kernel's error: {error:?}") };
    assert_eq!(name, "broken");
    assert!(source.0.contains(":2:"), "the file's own line: {source}");
    drop(context);
    backend.synchronize().expect("the error was the call's own");
}

#[test]
fn a_late_error_is_returned_by_the_next_read_and_nothing_is_written() {
    let backend = backend();
    let ptr = backend.alloc(4).unwrap();
    backend.copy_htod(ptr, &[1, 2, 3, 4]).unwrap();
    let error = wgpu::Error::Internal { source: "test".into(), description: "late".to_owned() };
    backend.context("test").unwrap().gpu.health.report(error);

    let mut bytes = [0; 4];
    let error = backend.copy_dtoh(&mut bytes, ptr).unwrap_err();
    assert_eq!((error.kind(), bytes), (ErrorKind::Driver, [0; 4]));
    backend.copy_dtoh(&mut bytes, ptr).expect("an error is reported once");
    assert_eq!(bytes, [1, 2, 3, 4]);
}
