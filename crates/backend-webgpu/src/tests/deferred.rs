//! Deferred submissions among other calls, on an adapter that is used as GPUs are.

use std::task;

use super::*;
use crate::context::Context;
use crate::custom::KernelDesc;
use crate::device::Selector;
use crate::opened::Opened;

/// Elements of each buffer.
const N: usize = 64;

/// Operations of a graph. The first segment of the first replay is submitted by the call, as the device is idle. What follows
/// of two replays doesn't fit into a batch, so that the second has the first submitted.
const OPERATIONS: usize = 100;

const TIMEOUT: Duration = Duration::from_millis(100);

/// A backend on the first adapter, as if it were a GPU, with `y += x` as a graph.
struct Rig {
    backend: WebGpuBackend,
    x: u64,
    y: u64,
    graph: u64,
}

impl Rig {
    fn new() -> Self {
        let found = pollster::block_on(device::enumerate());
        let (instance, adapter, info) = device::find(found, &Selector::default()).expect("a WebGPU adapter");
        let limits = adapter.limits();
        let info = backend_api::DeviceInfo { kind: DeviceKind::DiscreteGpu, ..info };
        let gpu = pollster::block_on(device::open(instance, adapter, info, limits, false)).unwrap();
        let backend = WebGpuBackend::over(Opened::new(Context::new(gpu).unwrap()));
        let [x, y] = [1.0, 0.0].map(|value| filled(&backend, value));
        let graph = adds(&backend, &[(x, y)]);
        backend.synchronize().unwrap();
        Self { backend, x, y, graph }
    }

    /// Replays so often that the last replay alone isn't handed over.
    fn replay(&self, times: usize) -> BackendResult<()> {
        (0..times).try_for_each(|_| self.backend.replay(self.graph))
    }

    fn device(&self) -> &Context {
        self.backend.opened().unwrap().device()
    }

    /// Keeps everybody from submitting what is deferred until it is dropped.
    fn hold(&self) -> impl Drop {
        self.device().submitter.hold_deferred()
    }

    fn has_deferred(&self) -> bool {
        self.device().submitter.has_deferred()
    }
}

fn filled(backend: &WebGpuBackend, value: f32) -> u64 {
    let ptr = backend.alloc(4 * N).unwrap();
    upload(backend, ptr, value);
    ptr
}

fn upload(backend: &WebGpuBackend, ptr: u64, value: f32) {
    backend.copy_htod(ptr, bytemuck::cast_slice(&[value; N])).unwrap();
}

/// A graph of [`OPERATIONS`] additions, each to the second of one of the pairs in turn.
fn adds(backend: &WebGpuBackend, pairs: &[(u64, u64)]) -> u64 {
    let record = &mut |recorded: &dyn ComputeBackend| {
        (0..OPERATIONS).try_for_each(|i| {
            let (x, y) = pairs[i % pairs.len()];
            recorded.binary(BinaryOp::Add, y, x, y, N)
        })
    };
    backend.capture(record).unwrap()
}

fn read(backend: &WebGpuBackend, ptr: u64) -> BackendResult<[f32; N]> {
    let mut numbers = [f32::NAN; N];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut numbers), ptr).map(|()| numbers)
}

fn kind<T>(result: BackendResult<T>) -> Result<(), ErrorKind> {
    result.map(drop).map_err(|error| error.kind())
}

/// Uploads between replays, memory and a graph that are freed, and memory that is used again.
#[test]
fn a_replay_sees_what_memory_held_when_it_was_called() {
    let rig = Rig::new();
    let Rig { backend, x, y, graph } = &rig;
    let held = rig.hold();
    for value in 1..=3 {
        upload(backend, *x, value as f32);
        rig.replay(1).unwrap();
    }
    assert!(rig.has_deferred());
    backend.free(*x).unwrap();
    backend.free_graph(*graph).unwrap();
    let reused = filled(backend, 7.0);
    assert_eq!(kind(backend.replay(*graph)), Err(ErrorKind::InvalidHandle));
    drop(held);
    assert_eq!(read(backend, *y).unwrap(), [600.0; N]);
    assert_eq!(read(backend, reused).unwrap(), [7.0; N]);
    assert!(!rig.has_deferred());
}

#[test]
fn nobody_waits_longer_than_the_timeout_for_another_thread_that_submits() {
    let rig = Rig::new();
    rig.backend.set_timeout(TIMEOUT).unwrap();
    let held = rig.hold();
    rig.replay(2).unwrap();
    let calls: [(&str, &dyn Fn() -> BackendResult<()>); 4] = [
        ("synchronize", &|| rig.backend.synchronize()),
        ("copy_dtoh", &|| read(&rig.backend, rig.y).map(drop)),
        ("flush", &|| rig.backend.flush()),
        ("replay", &|| rig.replay(20)),
    ];
    for (name, call) in calls {
        let start = std::time::Instant::now();
        assert_eq!(kind(call()), Err(ErrorKind::Timeout), "{name}");
        assert!(start.elapsed() < TIMEOUT + Duration::from_secs(1), "{name}");
    }
    drop(held);
    rig.backend.set_timeout(Duration::from_secs(60)).unwrap();
    let sum = read(&rig.backend, rig.y).unwrap()[0];
    // Two replays, and those of the twenty that came before the one which waited.
    assert!(sum >= 200.0 && sum % 100.0 == 0.0, "{sum}");
}

#[test]
fn a_lost_device_is_told_while_replays_are_deferred() {
    let rig = Rig::new();
    let held = rig.hold();
    rig.replay(3).unwrap();
    rig.backend.device().unwrap().destroy();
    assert_eq!(kind(read(&rig.backend, rig.y)), Err(ErrorKind::DeviceLost));
    assert_eq!(kind(rig.backend.synchronize()), Err(ErrorKind::DeviceLost));
    drop(held);
    assert_eq!(kind(rig.replay(3)), Err(ErrorKind::DeviceLost));
}

/// The driver refuses a deferred batch: who recorded it is told, once, and who reads what was made of it.
#[test]
fn what_a_refused_replay_should_have_written_is_stale() {
    let rig = Rig::new();
    let Rig { backend, x, y, .. } = &rig;
    let [lost, made] = [0.0; 2].map(|value| filled(backend, value));
    let graph = adds(backend, &[(*x, *y), (*x, lost)]);
    backend.synchronize().unwrap();
    backend.export_buffer(lost).unwrap().0.destroy();
    let held = rig.hold();
    backend.replay(graph).unwrap();
    rig.replay(1).unwrap();
    assert!(rig.has_deferred());
    backend.copy_dtod(made, *y, 4 * N).unwrap();
    drop(held);
    thread::scope(|scope| {
        let later = scope.spawn(|| [*y, made, *x].map(|ptr| kind(read(backend, ptr))));
        let told = later.join().unwrap();
        assert_eq!(told, [Err(ErrorKind::Driver), Ok(()), Ok(())], "the first that is stale, once");
        let later = scope.spawn(|| [*x, made].map(|ptr| kind(read(backend, ptr))));
        assert_eq!(later.join().unwrap(), [Ok(()), Err(ErrorKind::Driver)], "a copy of what is stale");
    });
    assert_eq!([(); 2].map(|()| kind(backend.synchronize())), [Err(ErrorKind::Driver), Ok(())]);
}

/// What was handed over when the backend goes runs, and what was only recorded doesn't.
#[test]
fn deferred_replays_run_when_the_backend_goes() {
    let rig = Rig::new();
    let (gpu, queue) = (rig.backend.device().unwrap().clone(), rig.backend.queue().unwrap().clone());
    let (buffer, offset, _) = rig.backend.export_buffer(rig.y).unwrap();
    rig.replay(6).unwrap();
    let recorded = rig.device().recorder.lock().recorded();
    assert!((1..600).contains(&recorded), "{recorded} of 600 commands weren't handed over");
    drop(rig);
    let staging = gpu.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = gpu.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(&buffer, offset, &staging, 0, 4);
    queue.submit([encoder.finish()]);
    staging.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
    gpu.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let bytes: [u8; 4] = staging.get_mapped_range(..).unwrap()[..].try_into().unwrap();
    assert_eq!(f32::from_ne_bytes(bytes), (600 - recorded) as f32);
    // These close the device, which the backend would do while nobody opens or compiles.
    let _alone = device::closing();
    drop((buffer, staging, queue, gpu));
}

#[test]
fn threads_replay_beside_each_other() {
    const ROUNDS: usize = 10;
    let rig = Rig::new();
    let Rig { backend, x, .. } = &rig;
    thread::scope(|scope| {
        for of in 0..3 {
            scope.spawn(move || {
                let y = filled(backend, 0.0);
                let graph = adds(backend, &[(*x, y)]);
                for round in 1..=ROUNDS {
                    (0..3).for_each(|_| backend.replay(graph).unwrap());
                    let expected = [(300 * round) as f32; N];
                    if of == 0 {
                        let mut numbers = [f32::NAN; N];
                        let bytes = bytemuck::cast_slice_mut(&mut numbers);
                        pollster::block_on(backend.copy_dtoh_async(bytes, y)).unwrap();
                        assert_eq!(numbers, expected);
                    } else if round % of == 0 {
                        assert_eq!(read(backend, y).unwrap(), expected);
                    }
                }
                backend.free_graph(graph).unwrap();
            });
        }
    });
}

/// A read of which nobody awaits the end is a use of its memory until its batch is over.
#[test]
fn memory_that_a_deferred_read_uses_is_held() {
    let rig = Rig::new();
    let backend = &rig.backend;
    let ptr = filled(backend, 1.0);
    backend.synchronize().unwrap();
    let held = rig.hold();
    rig.replay(3).unwrap();
    let mut bytes = [0; 4];
    let mut begun = backend.copy_dtoh_async(&mut bytes, ptr);
    assert!(begun.as_mut().poll(&mut task::Context::from_waker(task::Waker::noop())).is_pending());
    drop(begun);
    backend.free(ptr).unwrap();
    backend.trim().unwrap();
    assert_eq!(backend.memory_stats().releasing, 4 * N);
    drop(held);
    backend.synchronize().unwrap();
    backend.trim().unwrap();
    assert_eq!(backend.memory_stats().releasing, 0);
}

/// Who reads again and again while nothing is submitted waits for room like any other call.
#[test]
fn reads_that_run_out_of_time_do_not_pile_up() {
    let rig = Rig::new();
    let backend = &rig.backend;
    let held = rig.hold();
    rig.replay(3).unwrap();
    backend.set_timeout(Duration::from_millis(1)).unwrap();
    for _ in 0..100 {
        assert_eq!(kind(read(backend, rig.y)), Err(ErrorKind::Timeout));
    }
    let in_flight = rig.device().recorder.lock().in_flight();
    assert!(in_flight <= 40, "{in_flight} batches");
    drop(held);
    backend.set_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(read(backend, rig.y).unwrap(), [300.0; N]);
}

/// Whoever begins reads and waits again and again, and drops them, waits for room as well.
#[test]
fn futures_that_are_dropped_do_not_pile_up() {
    let rig = Rig::new();
    let held = rig.hold();
    rig.replay(3).unwrap();
    let mut noop = task::Context::from_waker(task::Waker::noop());
    for _ in 0..100 {
        let mut bytes = [0; 4];
        assert!(rig.backend.copy_dtoh_async(&mut bytes, rig.y).as_mut().poll(&mut noop).is_pending());
        assert!(rig.backend.synchronize_async().as_mut().poll(&mut noop).is_pending());
    }
    let in_flight = rig.device().recorder.lock().in_flight();
    assert!(in_flight <= 40, "{in_flight} batches");
    drop(held);
    assert_eq!(read(&rig.backend, rig.y).unwrap(), [300.0; N]);
}

/// A kernel of the caller's may read what it also writes, and so may what it makes of it be stale.
#[test]
fn what_a_kernel_makes_of_a_written_binding_is_as_stale() {
    const COPY: &str = "
        @group(0) @binding(0) var<storage, read_write> from_here: array<f32>;
        @group(0) @binding(1) var<storage, read_write> to_there: array<f32>;
        @compute @workgroup_size(1) fn main() { to_there[0] = from_here[0]; }";
    let rig = Rig::new();
    let Rig { backend, x, y, .. } = &rig;
    let kernel = backend.kernel(&KernelDesc::new("copy", COPY)).unwrap();
    let copy = |backend: &WebGpuBackend, to| backend.launch(&kernel, &[*y, to], &[], [1; 3]);
    let [lost, pending, later, captured, replayed] = [(); 5].map(|()| filled(backend, 0.0));
    let graph = adds(backend, &[(*x, *y), (*x, lost)]);
    let copies = [captured, replayed].map(|to| backend.capture_with(|recorded| copy(recorded, to)).unwrap());
    backend.synchronize().unwrap();
    backend.export_buffer(lost).unwrap().0.destroy();
    let held = rig.hold();
    // The first of three is begun by the call, and the second is the one that will be refused.
    rig.replay(1).unwrap();
    backend.replay(graph).unwrap();
    rig.replay(1).unwrap();
    assert!(rig.has_deferred() && !rig.device().gpu.health.has_late_errors());
    copy(backend, pending).unwrap();
    backend.replay(copies[0]).unwrap();
    drop(held);
    assert_eq!(kind(backend.synchronize()), Err(ErrorKind::Driver));
    copy(backend, later).unwrap();
    backend.replay(copies[1]).unwrap();
    backend.synchronize().unwrap();
    for ptr in [pending, captured, later, replayed] {
        let told = thread::scope(|scope| scope.spawn(|| kind(read(backend, ptr))).join().unwrap());
        assert_eq!(told, Err(ErrorKind::Driver));
    }
    let told = thread::scope(|scope| scope.spawn(|| kind(read(backend, *x))).join().unwrap());
    assert_eq!(told, Ok(()), "what was only read");
}

/// Each backend closes its device though nobody polls it after the last wait.
#[test]
fn an_uploads_buffer_keeps_no_device_open() {
    let rig = Rig::new();
    upload(&rig.backend, rig.x, 2.0);
    rig.backend.synchronize().unwrap();
    let health = Arc::clone(&rig.device().gpu.health);
    drop(rig);
    assert_eq!(Arc::strong_count(&health), 1);
}
