//! What the suites can't reach: faults that no caller can bring about, and what is not in the contract.

mod closing;
mod deferred;

use std::cell::RefCell;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use backend_api::support::{Access, Operand};
use backend_api::{
    BackendError, BackendResult, BackendTranspose, BinaryOp, ComputeBackend, DType, DeviceKind, ErrorKind,
    ReduceOp, Registry,
};
use half::f16;
use parking_lot::Mutex;

use crate::WebGpuBackend;
use crate::device;
use crate::kernels::{KernelSource, Variant};

static BROKEN: KernelSource = KernelSource {
    name: "broken",
    text: "struct Params { n: u32 }\n@compute @workgroup_size(1) fn main() { let x: f32 = 1u; }",
    libs: &[],
    types: &[],
    constants: &[],
    reads: &[],
    writes: &[],
    params: &[],
    unrolled: None,
    cooperative: false,
    subgroups: false,
    mixes_outputs: false,
};

fn backend() -> WebGpuBackend {
    WebGpuBackend::open()
        .expect("a WebGPU adapter; on Debian and Ubuntu: apt-get install mesa-vulkan-drivers libvulkan1")
}

#[test]
fn a_kernel_that_does_not_build_is_an_error_with_the_line() {
    let backend = backend();
    let context = backend.context("test").unwrap();
    let error = context.device().pipelines.get(&Variant::new(&BROKEN, [], [])).unwrap_err();
    let BackendError::Kernel { name, source, .. } = error else { panic!("not a kernel's error: {error:?}") };
    assert_eq!(name, "broken");
    assert!(source.reason.contains(":2:"), "the file's own line: {source}");
    drop(context);
    backend.synchronize().expect("the error was the call's own");
}

#[test]
fn a_late_error_is_returned_by_the_next_read_and_nothing_is_written() {
    let backend = backend();
    let ptr = backend.alloc(4).unwrap();
    backend.copy_htod(ptr, &[1, 2, 3, 4]).unwrap();
    let error = wgpu::Error::Internal { source: "test".into(), description: "late".to_owned() };
    backend.context("test").unwrap().device().gpu.health.report(error);

    let mut bytes = [0; 4];
    let error = backend.copy_dtoh(&mut bytes, ptr).unwrap_err();
    assert_eq!((error.kind(), bytes), (ErrorKind::Driver, [0; 4]));
    backend.copy_dtoh(&mut bytes, ptr).expect("an error is reported once");
    assert_eq!(bytes, [1, 2, 3, 4]);
}

/// A device that closes in another thread unloads its driver while the process ends.
#[test]
fn a_dropped_backend_has_let_go_of_its_device() {
    for _ in 0..5 {
        let backend = backend();
        let ptr = backend.alloc(4).unwrap();
        backend.fill(ptr, DType::F32, 1, 1.0).unwrap();
        backend.synchronize().unwrap();
        // The device's callbacks have it too.
        let health = std::sync::Arc::clone(&backend.context("test").unwrap().device().gpu.health);
        drop(backend);
        assert_eq!(std::sync::Arc::strong_count(&health), 1);
    }
}

/// An OpenGL adapter has waits that poll and then block; on Vulkan's software adapters another thread wakes
/// them.
#[test]
fn waits_end_however_long_they_poll() {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    for device in registry.available() {
        let mut backend = WebGpuBackend::select(device.selector.trim_start_matches("webgpu:"));
        backend.init().unwrap();
        let ptr = backend.alloc(4).unwrap();
        for (number, spin) in
            [Duration::ZERO, Duration::from_micros(50), Duration::MAX].into_iter().enumerate()
        {
            backend.set_spin(spin).unwrap();
            backend.fill(ptr, DType::F32, 1, number as f64).unwrap();
            let mut bytes = [0; 4];
            backend.copy_dtoh(&mut bytes, ptr).unwrap();
            assert_eq!(f32::from_le_bytes(bytes), number as f32, "{} polling {spin:?}", device.name);
        }
        backend.set_timeout(Duration::ZERO).unwrap();
        backend.fill(ptr, DType::F32, 1, 1.0).unwrap();
        let error = backend.synchronize().err().map(|error| error.kind());
        assert!(
            matches!(error, None | Some(ErrorKind::Timeout)),
            "{} polling for ever: {error:?}",
            device.name
        );
    }
}

#[test]
fn flushes_give_back_what_has_finished() {
    let backend = backend();
    let ptr = backend.alloc(4).unwrap();
    let fill = || backend.fill(ptr, DType::F32, 1, 1.0).and_then(|()| backend.flush()).unwrap();
    (0..100).for_each(|_| fill());
    backend.device().unwrap().poll(wgpu::PollType::wait_indefinitely()).unwrap();
    fill();
    let in_flight = backend.context("test").unwrap().device().recorder.lock().in_flight();
    assert!(in_flight <= 3, "{in_flight} batches");
}

/// Each product takes longer than recording it, and is submitted by itself.
#[test]
fn long_operations_in_flight_are_bounded() {
    let backend = backend();
    let n = 256;
    let [a, b, c] = [(); 3].map(|()| backend.alloc(4 * n * n).unwrap());
    for ptr in [a, b] {
        backend.fill(ptr, DType::F32, n * n, 1.0).unwrap();
    }
    backend.synchronize().unwrap();
    let no = BackendTranspose::NoTrans;
    let product = || backend.gemm(no, no, n, n, n, 1.0, a, n, b, n, 0.0, c, n).unwrap();
    // As slow a device as it takes for a product to be long.
    let mut slowdown = 50.0;
    while backend.cuts() < 5 {
        backend.pretend(slowdown, 0).unwrap();
        (0..10).for_each(|_| product());
        slowdown *= 2.0;
        assert!(slowdown < 1e9, "no product is long");
    }
    let mut most = 0;
    for _ in 0..150 {
        product();
        most = most.max(backend.context("test").unwrap().device().recorder.lock().in_flight());
    }
    backend.pretend(1.0, 0).unwrap();
    let mut first = [0; 4];
    backend.copy_dtoh(&mut first, c).unwrap();
    assert_eq!(f32::from_le_bytes(first), 256.0);
    assert!(backend.cuts() > 40, "{} batches: the operations are too short to tell", backend.cuts());
    assert!(most <= 64, "{most} batches in flight");
}

#[test]
fn what_was_warmed_up_compiles_nothing_later() {
    let backend = backend();
    let n = 40;
    let [a, b, c] = [(); 3].map(|()| backend.alloc(4 * n * n).unwrap());
    backend.fill(a, DType::F32, n * n, 1.0).unwrap();
    let before = backend.compiled_kernels();
    let no = BackendTranspose::NoTrans;
    let product = |backend: &dyn ComputeBackend| backend.gemm(no, no, n, n, n, 1.0, a, n, b, n, 0.0, c, n);
    let sums = |backend: &dyn ComputeBackend| backend.reduce(ReduceOp::Sum, c, b, &[n, n], 1);
    pollster::block_on(backend.warm_up_async(&[&product, &sums])).unwrap();
    let warm = backend.compiled_kernels();
    assert!(warm >= before + 2, "{before} kernels before, {warm} after");
    product(&backend).unwrap();
    sums(&backend).unwrap();
    backend.synchronize().unwrap();
    assert_eq!(backend.compiled_kernels(), warm);
}

/// Nanoseconds for which this thread has run on a CPU.
#[cfg(target_os = "linux")]
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn waiting_without_blocking_keeps_no_core_busy() {
    let backend = backend();
    // On a software adapter one is long enough, on a GPU many are.
    let n = match backend.device_info().unwrap().kind {
        DeviceKind::SoftwareAdapter => 1024,
        _ => 4096,
    };
    let bytes = n * n * size_of::<f32>();
    let [a, c] = [backend.alloc_zeroed(bytes).unwrap(), backend.alloc_zeroed(bytes).unwrap()];
    let no = BackendTranspose::NoTrans;
    let product = || backend.gemm(no, no, n, n, n, 1.0, a, n, a, n, 0.0, c, n).unwrap();
    product();
    backend.synchronize().unwrap();
    // A software adapter's driver does most of the work before a submission returns, so that little may be left to wait for.
    let (mut waited, mut busy) = (Duration::ZERO, Duration::ZERO);
    let mut read = [0; 4];
    let begin = std::time::Instant::now();
    let mut products = 1;
    while begin.elapsed() < Duration::from_secs(30) {
        (0..products).for_each(|_| product());
        backend.flush().ok();
        let (start, cpu) = (std::time::Instant::now(), cpu_time());
        pollster::block_on(backend.copy_dtoh_async(&mut read, c)).unwrap();
        let wait = start.elapsed();
        if wait < Duration::from_millis(30) {
            products = 1024.min(2 * products);
            continue;
        }
        waited += wait;
        busy += Duration::from_nanos(cpu_time() - cpu);
        if waited > Duration::from_millis(250) {
            assert!(busy * 5 < waited, "{busy:?} of {waited:?} on a CPU");
            return;
        }
    }
    let info = backend.device_info().unwrap();
    assert_eq!(info.api, "Gl", "no wait was long enough to be judged");
}

#[test]
fn a_warm_up_returns_what_its_operations_return() {
    let backend = backend();
    let ptr = backend.alloc(16).unwrap();
    let short = |backend: &dyn ComputeBackend| backend.unary(backend_api::UnaryOp::Neg, ptr, ptr, 5);
    let error = pollster::block_on(backend.warm_up_async(&[&short])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BufferTooSmall);
    assert_eq!(backend.compiled_kernels(), 0);
}

/// Bytes that aren't whole words are written by a kernel, as zeros are.
#[test]
fn a_warm_up_makes_transfers_and_allocations() {
    let backend = backend();
    let [whole, part] = [(); 2].map(|()| backend.alloc(8).unwrap());
    for ptr in [whole, part] {
        backend.copy_htod(ptr, &[9; 8]).unwrap();
    }
    // Freed memory that alloc_zeroed may be given again.
    let used = backend.alloc(1002).unwrap();
    backend.copy_htod(used, &[9; 1002]).unwrap();
    backend.free(used).unwrap();
    let zeroed = Mutex::new(0);
    let transfers = |backend: &dyn ComputeBackend| {
        backend.copy_htod(whole, &[1, 2, 3, 4])?;
        backend.copy_htod(part, &[1, 2, 3])?;
        *zeroed.lock() = backend.alloc_zeroed(1002)?;
        Ok(())
    };
    pollster::block_on(backend.warm_up_async(&[&transfers])).unwrap();
    let read = |ptr, bytes| {
        let mut read = vec![7; bytes];
        backend.copy_dtoh(&mut read, ptr).unwrap();
        read
    };
    assert_eq!(read(whole, 8), [1, 2, 3, 4, 9, 9, 9, 9]);
    assert_eq!(read(part, 8), [1, 2, 3, 9, 9, 9, 9, 9]);
    assert_eq!(read(*zeroed.lock(), 1002), [0; 1002]);
}

/// A cache of handles that frees them when its thread ends. The locals of a thread are destroyed in the
/// reverse order of their first use, so that the backend's own are gone by then.
#[test]
fn calls_may_come_from_destructors_of_a_threads_locals() {
    type Results = Arc<Mutex<Vec<BackendResult<()>>>>;
    struct Cached(Arc<WebGpuBackend>, u64, Results);
    impl Drop for Cached {
        fn drop(&mut self) {
            let Self(backend, ptr, results) = self;
            let calls = [backend.fill(*ptr, DType::F32, 1, 1.0), backend.synchronize(), backend.free(*ptr)];
            // A panic here would end the process without a word.
            results.lock().extend(calls);
        }
    }
    thread_local! {
        static CACHE: RefCell<Option<Cached>> = const { RefCell::new(None) };
    }
    let backend = Arc::new(backend());
    // With debug assertions, wgpu's own locks use locals of the thread that submits.
    if cfg!(debug_assertions) && !backend.context("test").unwrap().device().submitter.has_thread() {
        println!("not run: wgpu's debug assertions don't allow it on this device");
        return;
    }
    let ptr = backend.alloc(4).unwrap();
    let shared = Arc::clone(&backend);
    let results = Results::default();
    let kept = Arc::clone(&results);
    let caller = thread::spawn(move || {
        CACHE.with_borrow_mut(|cache| *cache = Some(Cached(Arc::clone(&shared), ptr, kept)));
        shared.fill(ptr, DType::F32, 1, 0.0).unwrap();
    });
    caller.join().unwrap();
    assert_eq!(*results.lock(), [const { Ok(()) }; 3]);
    assert_eq!(backend.free(ptr).unwrap_err().kind(), ErrorKind::InvalidHandle, "it is freed");
}

/// While somebody compiles no device closes, but neither a drop nor another compilation waits for that.
#[test]
fn a_long_compilation_keeps_nobody_else_waiting() {
    let closing = backend();
    closing.set_timeout(Duration::from_millis(100)).unwrap();
    let long = device::compiling();
    let (closes, closed) = mpsc::channel();
    let (compiles, compiled) = mpsc::channel();
    let others = [
        thread::spawn(move || {
            drop(closing);
            closes.send(()).unwrap();
        }),
        thread::spawn(move || {
            for _ in 0..10 {
                thread::sleep(Duration::from_millis(10));
                drop(device::compiling());
            }
            compiles.send(()).unwrap();
        }),
    ];
    let patience = Duration::from_secs(30);
    closed.recv_timeout(patience).expect("the drop returns");
    compiled.recv_timeout(patience).expect("others compile");
    drop(long);
    others.into_iter().for_each(|other| other.join().unwrap());
}

/// Whether `act` returns while `guard` is held, and that it returns once it isn't.
fn returns_beside<T>(guard: T, act: impl FnOnce() + Send + 'static) -> bool {
    let (ends, ended) = mpsc::channel();
    let other = thread::spawn(move || {
        act();
        ends.send(()).unwrap();
    });
    let returned = ended.recv_timeout(Duration::from_millis(200)).is_ok();
    drop(guard);
    other.join().unwrap();
    returned
}

/// Some drivers hang where one thread closes a device and another asks for adapters.
#[test]
fn no_adapter_is_looked_for_while_a_device_closes() {
    let open = || drop(pollster::block_on(device::enumerate()));
    open();
    assert!(!returns_beside(device::closing(), open));
}

/// A buffer that outlives its backend, in whatever holds it, closes the device.
#[test]
fn no_buffer_closes_its_device_while_others_compile() {
    let backend = backend();
    let ptr = backend.alloc(1000).unwrap();
    let operand = Operand::bytes("x", ptr, 1000, Access::Read);
    let kept = backend.context("test").unwrap().device().memory.resolve("test", &[operand]).unwrap();
    drop(backend);
    assert!(!returns_beside(device::compiling(), || drop(kept)));
}

#[test]
fn gemm_f16_multiplies_where_there_is_f16_and_is_unsupported_elsewhere() {
    let mut registry = Registry::new();
    crate::register(&mut registry);
    let devices = registry.available();
    assert!(
        !devices.is_empty(),
        "no WebGPU adapter; on Debian and Ubuntu: apt-get install mesa-vulkan-drivers libvulkan1"
    );
    for device in devices {
        let mut backend = WebGpuBackend::select(device.selector.trim_start_matches("webgpu:"));
        backend.init().unwrap();
        // Integers, so that every sum is exact: A is 3×5, B 5×4, C 3×4.
        let (m, n, k) = (3, 4, 5);
        let number = |i: usize| f16::from_f32((i % 7) as f32 - 3.0);
        let a: Vec<f16> = (0..m * k).map(number).collect();
        let b: Vec<f16> = (0..k * n).map(|i| number(3 * i + 1)).collect();
        let [pa, pb, pc] = [m * k, k * n, m * n].map(|elements| backend.alloc(2 * elements).unwrap());
        backend.copy_htod(pa, bytemuck::cast_slice(&a)).unwrap();
        backend.copy_htod(pb, bytemuck::cast_slice(&b)).unwrap();
        let product = backend.gemm_f16(m, n, k, 2.0, pa, pb, 0.0, pc);
        if !backend.capabilities().unwrap().f16 {
            assert_eq!(product.unwrap_err().kind(), ErrorKind::Unsupported, "{}", device.name);
            assert_eq!(backend.fill(pc, DType::F16, 1, 0.0).unwrap_err().kind(), ErrorKind::Unsupported);
            continue;
        }
        product.unwrap();
        let mut c = vec![f16::NAN; m * n];
        backend.copy_dtoh(bytemuck::cast_slice_mut(&mut c), pc).unwrap();
        for (i, got) in c.into_iter().enumerate() {
            let terms = (0..k).map(|l| a[i / n * k + l].to_f32() * b[l * n + i % n].to_f32());
            assert_eq!(got.to_f32(), 2.0 * terms.sum::<f32>(), "{} at {i}", device.name);
        }
    }
}
