//! What the backend adds to bare wgpu: a chain of 2,000 tiny operations, and one tiny operation with its
//! read-back.
//!
//! `cargo bench --bench overhead`. The bare loop records the same dispatches by hand into one pass, with a
//! bind group made beforehand, and reads back through one staging buffer. Besides the usual lines it prints
//! the ratios of the medians of runs that alternate between the two, and the host's time for an operation that
//! is recorded or replayed: what the call takes until it returns, and of it and of what follows until the device has
//! everything, encoding the graph, ending passes and submitting, where wgpu checks what was recorded and the driver
//! records it. It also prints what one replay takes with the wait for it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use backend_api::{BackendResult, ComputeBackend, UnaryOp};
use backend_webgpu::WebGpuBackend;
use criterion::Criterion;
use tracing::span;

const CHAIN: usize = 2_000;
const ELEMENTS: usize = 64;
const BYTES: u64 = 4 * ELEMENTS as u64;

/// y = abs(x) through bare wgpu.
struct Bare {
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
    groups: [wgpu::BindGroup; 2],
    output: wgpu::Buffer,
    staging: wgpu::Buffer,
}

const SHADER: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if id.x < 64u { y[id.x] = abs(x[id.x]); }
}";

impl Bare {
    fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(SHADER.into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let buffer = |usage| {
            let descriptor =
                wgpu::BufferDescriptor { label: None, size: BYTES, usage, mapped_at_creation: false };
            device.create_buffer(&descriptor)
        };
        let storage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        let tensors = [buffer(storage), buffer(storage)];
        let layout = pipeline.get_bind_group_layout(0);
        let groups = [0, 1].map(|from| {
            device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &layout,
                entries: &[
                    wgpu::BindGroupEntry { binding: 0, resource: tensors[from].as_entire_binding() },
                    wgpu::BindGroupEntry { binding: 1, resource: tensors[1 - from].as_entire_binding() },
                ],
            })
        });
        let staging = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let [_, output] = tensors;
        Self { device: device.clone(), queue: queue.clone(), pipeline, groups, output, staging }
    }

    fn record(&self, encoder: &mut wgpu::CommandEncoder, dispatches: usize) {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        for i in 0..dispatches {
            pass.set_bind_group(0, &self.groups[i % 2], &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
    }

    fn chain(&self) {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.record(&mut encoder, CHAIN);
        self.queue.submit([encoder.finish()]);
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device finishes");
    }

    fn round_trip(&self) -> f32 {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.record(&mut encoder, 1);
        encoder.copy_buffer_to_buffer(&self.output, 0, &self.staging, 0, BYTES);
        self.queue.submit([encoder.finish()]);
        self.staging.map_async(wgpu::MapMode::Read, .., |mapped| mapped.expect("the buffer is mapped"));
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device finishes");
        let view = self.staging.get_mapped_range(..).expect("the buffer is mapped");
        let first: f32 = bytemuck::cast_slice(&view)[0];
        drop(view);
        self.staging.unmap();
        first
    }
}

/// y = abs(x) through the backend.
struct Ours {
    backend: WebGpuBackend,
    tensors: [u64; 2],
}

impl Ours {
    fn new(backend: WebGpuBackend) -> Self {
        let tensors = [0; 2].map(|_| backend.alloc(BYTES as usize).expect("memory"));
        Self { backend, tensors }
    }

    fn record(&self, operations: usize) {
        self.call(&self.backend, operations).expect("the operations are recorded");
    }

    fn call(&self, backend: &dyn ComputeBackend, operations: usize) -> BackendResult<()> {
        (0..operations).try_for_each(|i| {
            let (x, y) = (self.tensors[i % 2], self.tensors[1 - i % 2]);
            backend.unary(UnaryOp::Abs, x, y, ELEMENTS)
        })
    }

    /// The operations as a graph.
    fn capture(&self, operations: usize) -> u64 {
        self.backend.capture(&mut |recorded| self.call(recorded, operations)).expect("a graph")
    }

    fn chain(&self) {
        self.record(CHAIN);
        self.backend.synchronize().expect("the device finishes");
    }

    fn round_trip(&self) -> f32 {
        self.record(1);
        let mut output = [0f32; ELEMENTS];
        self.backend.copy_dtoh(bytemuck::cast_slice_mut(&mut output), self.tensors[1]).expect("a read-back");
        output[0]
    }
}

/// Operations of the graphs that are replayed.
const REPLAYED: [usize; 3] = [1, 100, 1000];

/// Operations of the graphs whose replays' host times are printed.
const TIMED: [usize; 4] = [1, 100, 600, 1000];

/// Operations of the graphs of which one replay is waited for.
const WAITED: [usize; 4] = [1, 16, 64, 600];

/// Operations that are recorded without a wait: fewer than the batches in flight hold.
const UNWAITED: usize = 300;

/// Runs whose time is taken.
const SAMPLES: usize = 300;

/// The parts of the backend's work that it makes spans of.
const SPANS: [&str; 3] = ["encode", "end_pass", "submit"];

/// Nanoseconds in each of [`SPANS`], of all threads.
static SPENT: [AtomicU64; SPANS.len()] = [const { AtomicU64::new(0) }; SPANS.len()];

thread_local! {
    /// When the spans were entered that the thread is in.
    static ENTERED: RefCell<Vec<Instant>> = const { RefCell::new(Vec::new()) };
}

/// Adds up how long the spans are entered.
struct Spans;

impl tracing::Subscriber for Spans {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.is_span() && SPANS.contains(&metadata.name())
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let place = SPANS.iter().position(|&name| name == span.metadata().name());
        span::Id::from_u64(place.map_or(1, |place| place as u64 + 1))
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {}

    fn enter(&self, _: &span::Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(Instant::now()));
    }

    fn exit(&self, span: &span::Id) {
        if let Some(entered) = ENTERED.with_borrow_mut(Vec::pop) {
            let spent = &SPENT[span.into_u64() as usize - 1];
            spent.fetch_add(entered.elapsed().as_nanos() as u64, Ordering::Relaxed);
        }
    }
}

/// The host's time for an operation, in nanoseconds: the median over runs of [`UNWAITED`] operations or one
/// graph, between which the device finishes. What the spans took of it follows, on average.
fn host_nanoseconds(ours: &Ours, operations: usize, mut run: impl FnMut()) -> (f64, String) {
    let repeats = (UNWAITED / operations).max(1);
    ours.backend.synchronize().expect("the device finishes");
    SPENT.iter().for_each(|spent| spent.store(0, Ordering::Relaxed));
    let mut times: Vec<Duration> = (0..SAMPLES)
        .map(|_| {
            ours.backend.synchronize().expect("the device finishes");
            let start = Instant::now();
            (0..repeats).for_each(|_| run());
            start.elapsed()
        })
        .collect();
    ours.backend.synchronize().expect("the device finishes");
    let all = (SAMPLES * repeats * operations) as f64;
    let spent = SPANS
        .iter()
        .zip(&SPENT)
        .map(|(name, spent)| format!("{name} {:.0}", spent.load(Ordering::Relaxed) as f64 / all));
    let spent = spent.collect::<Vec<_>>().join(", ");
    times.sort_unstable();
    (times[times.len() / 2].as_secs_f64() * 1e9 / (repeats * operations) as f64, spent)
}

/// Prints the host's time for an operation that is recorded, and for one that is replayed.
fn host_times(ours: &Ours) {
    let (recorded, spent) = host_nanoseconds(ours, UNWAITED, || ours.record(UNWAITED));
    println!("host, recorded: the call {recorded:.0} ns an operation; {spent} in all");
    for operations in TIMED {
        let graph = ours.capture(operations);
        let replay = || ours.backend.replay(graph).expect("the graph is replayed");
        let (replayed, spent) = host_nanoseconds(ours, operations, replay);
        println!(
            "host, replayed by {operations}: the call {replayed:.0} ns an operation, {:.2} of recording; {spent} in all",
            replayed / recorded
        );
        ours.backend.free_graph(graph).expect("a live graph");
    }
}

/// Prints how long one replay takes with the wait for it: the median and the tenths at both ends.
fn waited_times(ours: &Ours) {
    for operations in WAITED {
        let graph = ours.capture(operations);
        let mut times: Vec<Duration> = (0..SAMPLES)
            .map(|_| {
                let start = Instant::now();
                ours.backend.replay(graph).expect("the graph is replayed");
                ours.backend.synchronize().expect("the device finishes");
                start.elapsed()
            })
            .collect();
        times.sort_unstable();
        let [fast, median, slow] = [1, 5, 9].map(|tenth| times[times.len() * tenth / 10]);
        println!("replay of {operations} and synchronize: {median:.1?} ({fast:.1?} to {slow:.1?})");
        ours.backend.free_graph(graph).expect("a live graph");
    }
}

/// The ratio of the medians of `ours` and `bare`, run in turns for a second.
fn ratio(name: &str, mut ours: impl FnMut(), mut bare: impl FnMut()) {
    let mut times: [Vec<Duration>; 2] = Default::default();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        for (side, times) in times.iter_mut().enumerate() {
            let start = Instant::now();
            if side == 0 {
                ours();
            } else {
                bare();
            }
            times.push(start.elapsed());
        }
    }
    let [ours, bare] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64()
    });
    println!("{name}: ours {:.1} µs, bare {:.1} µs, ratio {:.2}", ours * 1e6, bare * 1e6, ours / bare);
}

fn main() {
    let selection = std::env::var(backend_api::OVERRIDE_VARIABLE).unwrap_or_default();
    let mut backend = WebGpuBackend::select(selection.strip_prefix("webgpu:").unwrap_or_default());
    backend.init().expect("an adapter");
    let device = backend.device().expect("an open device").clone();
    let bare = Bare::new(&device, backend.queue().expect("an open device"));
    let ours = Ours::new(backend);
    ratio(&format!("chain of {CHAIN}"), || ours.chain(), || bare.chain());
    ratio(
        "operation and read-back",
        || assert!(ours.round_trip() >= 0.0),
        || assert!(bare.round_trip() >= 0.0),
    );

    let mut criterion = Criterion::default().sample_size(10).configure_from_args();
    let mut group = criterion.benchmark_group("overhead");
    group.bench_function("chain/ours", |bencher| bencher.iter(|| ours.chain()));
    group.bench_function("chain/bare", |bencher| bencher.iter(|| bare.chain()));
    for operations in REPLAYED {
        let graph = ours.capture(operations);
        group.bench_function(format!("chain/replayed_by_{operations}"), |bencher| {
            bencher.iter(|| {
                (0..CHAIN / operations).for_each(|_| ours.backend.replay(graph).expect("a replay"));
                ours.backend.synchronize().expect("the device finishes");
            });
        });
        ours.backend.free_graph(graph).expect("a live graph");
    }
    group.bench_function("round_trip/ours", |bencher| bencher.iter(|| ours.round_trip()));
    group.bench_function("round_trip/bare", |bencher| bencher.iter(|| bare.round_trip()));
    group.finish();
    criterion.final_summary();

    waited_times(&ours);
    tracing::subscriber::set_global_default(Spans).expect("nobody else has one");
    host_times(&ours);
}
