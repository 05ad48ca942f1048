//! Captured calls on every backend: the conformance cases, captured once and replayed for two sets of numbers,
//! threads that replay beside each other, and what only this backend has.
//!
//! On the CPU one case in [`EVERY_ON_CPU`] runs, on adapters one in [`EVERY`], and at least one of each operation; `EVERY=1 cargo
//! test -p suites --test capture` runs all, `CASE=softmax` those whose path contains that.

mod opened;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use backend_api::desc::CumSumDesc;
use backend_api::{BackendError, BinaryOp, ComputeBackend, DType, ErrorKind, ReduceOp, UnaryOp};
use backend_webgpu::WebGpuBackend;
use conformance::{Case, Outcome, cases};
use libtest_mimic::{Arguments, Failed, Trial};
use suites::{BackendUnderTest, Filter, Sample, backends, registry};

/// One in how many conformance cases is run on an adapter.
const EVERY: usize = 96;

/// One in how many conformance cases is run on the CPU, whose graphs call the operations that conformance calls.
const EVERY_ON_CPU: usize = 16;

/// How many failing cases are listed.
const LISTED: usize = 20;

/// The fewest cases that a whole run replays on each backend.
const FEWEST: usize = 100;

const THREADS: usize = 4;
const ROUNDS: usize = 200;

type Check = fn(&BackendUnderTest) -> Result<(), String>;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for tested in backends() {
        let tested = Arc::new(tested);
        let mut checks: Vec<(&str, Check)> = vec![
            ("conformance", replayed),
            ("threads", threads),
            ("one_graph_of_many_threads", shared),
            ("accounts", accounts),
            ("a_panic", a_panic),
        ];
        if tested.selector != "cpu" {
            checks.extend::<[(&str, Check); 4]>([
                ("without_immediates", without_immediates),
                ("capture_with", own_operations),
                ("out_of_memory", out_of_memory),
                ("cuts", cuts),
            ]);
        }
        trials.extend(checks.into_iter().map(|(name, check)| {
            let tested = Arc::clone(&tested);
            Trial::test(format!("capture/{}/{name}", tested.slug), move || {
                check(&tested).map_err(Failed::from)
            })
        }));
    }
    suites::run(&arguments, trials).exit_code()
}

fn text(error: BackendError) -> String {
    format!("{error:?}")
}

fn replayed(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = tested.backend()?;
    let filter = Filter::from_environment();
    filter.check(cases().iter().map(Case::path))?;
    let sample = match &*tested.selector {
        "cpu" if filter.is_empty() => Sample::nested(&backend.device_info().map_err(text)?, EVERY_ON_CPU)?,
        _ if !filter.is_empty() => Sample::all(),
        _ => Sample::nested(&backend.device_info().map_err(text)?, EVERY)?,
    };
    let mut families: BTreeMap<&str, Vec<Case>> = BTreeMap::new();
    for case in cases().into_iter().filter(|case| case.is_one_call() && filter.has(&case.path())) {
        families.entry(case.family).or_default().push(case);
    }
    let (mut right, mut failures) = (0, Vec::new());
    for cases in families.values() {
        sample.run(cases, |case| {
            match case.run_replayed(backend) {
                Ok(Outcome::Right) => right += 1,
                // What needs f16 doesn't count where there is none.
                Ok(_) => return false,
                Err(failure) => failures.push(failure.to_string()),
            }
            true
        });
    }
    println!("{}: {right} cases replayed", tested.label);
    if filter.is_empty() && right < FEWEST {
        failures.push(format!("only {right} cases were replayed"));
    }
    if failures.is_empty() {
        return Ok(());
    }
    let failed = failures.len();
    failures.truncate(LISTED);
    Err(format!("{failed} failures:\n{}", failures.join("\n")))
}

/// Numbers at the start of `ptr`.
fn read(backend: &dyn ComputeBackend, ptr: u64, n: usize) -> Result<Vec<f32>, String> {
    let mut numbers = vec![0f32; n];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut numbers), ptr).map_err(text)?;
    Ok(numbers)
}

fn expect_all(what: &str, got: &[f32], want: f32) -> Result<(), String> {
    match got.iter().position(|&x| x != want) {
        Some(at) => Err(format!("{what}: number {at} of {} is {}, expected {want}", got.len(), got[at])),
        None => Ok(()),
    }
}

fn ones(backend: &dyn ComputeBackend, n: usize) -> Result<u64, String> {
    let ptr = backend.alloc(4 * n).map_err(text)?;
    backend.fill(ptr, DType::F32, n, 1.0).map_err(text)?;
    Ok(ptr)
}

/// Runs `work` in several threads.
fn in_threads(work: impl Fn(usize) -> Result<(), String> + Sync) -> Result<(), String> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || work(number))).collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| "a panic".to_owned()));
        ended.into_iter().try_for_each(|outcome| outcome?)
    })
}

/// Threads capture, replay and free graphs of their own, over an input that all share.
fn threads(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = tested.backend()?;
    let n = 300;
    let one = ones(backend, n)?;
    in_threads(|number| {
        let x = ones(backend, n)?;
        for round in 0..ROUNDS / 20 {
            backend.fill(x, DType::F32, n, round as f64).map_err(text)?;
            let graph = backend.capture(&mut |recorded| {
                (0..=number).try_for_each(|_| recorded.binary(BinaryOp::Add, x, one, x, n))
            });
            let graph = graph.map_err(text)?;
            for _ in 0..20 {
                backend.replay(graph).map_err(text)?;
            }
            backend.free_graph(graph).map_err(text)?;
            let want = (round + 20 * (number + 1)) as f32;
            expect_all(&format!("thread {number}, round {round}"), &read(backend, x, n)?, want)?;
        }
        backend.free(x).map_err(text)
    })?;
    backend.free(one).map_err(text)
}

/// A replay is one call: no other thread's comes between its operations.
fn shared(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = tested.backend()?;
    let n = 300;
    let [one, x, between] = [ones(backend, n)?, ones(backend, n)?, ones(backend, n)?];
    // x + 1 by way of `between`, which is spoiled meanwhile and whole before and after.
    let graph = backend.capture(&mut |recorded| {
        recorded.fill(between, DType::F32, n, 0.0)?;
        recorded.binary(BinaryOp::Add, x, one, between, n)?;
        recorded.copy_dtod(x, between, 4 * n)
    });
    let graph = graph.map_err(text)?;
    in_threads(|_| (0..ROUNDS).try_for_each(|_| backend.replay(graph)).map_err(text))?;
    expect_all("the count of replays", &read(backend, x, n)?, (1 + THREADS * ROUNDS) as f32)?;
    backend.free_graph(graph).map_err(text)?;
    [one, x, between].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

/// A graph's memory is in use until the graph is freed, whatever becomes of the handles; a failed capture
/// keeps none.
fn accounts(tested: &BackendUnderTest) -> Result<(), String> {
    tested.backend()?;
    let backend = registry().create(&tested.selector).map_err(text)?;
    let n = 100_000;
    let stats = || (backend.memory_stats().in_use, backend.memory_stats().handles);
    let expect = |what: &str, want: (usize, usize)| match stats() {
        got if got == want => Ok(()),
        got => Err(format!("{what}: {got:?} bytes and handles, expected {want:?}")),
    };
    let before = stats();
    let [x, y] = [ones(&*backend, n)?, ones(&*backend, 1)?];
    let allocated = stats();
    let sum = |recorded: &dyn ComputeBackend| recorded.reduce(ReduceOp::Sum, x, y, &[n], 0);
    let failed = backend.capture(&mut |recorded| {
        sum(recorded)?;
        recorded.synchronize()
    });
    if failed != Err(BackendError::Capturing { op: "synchronize" }) {
        return Err(format!("a wait within a capture gave {failed:?}"));
    }
    expect("a failed capture", allocated)?;
    let one = backend.capture(&mut { sum }).map_err(text)?;
    let held = stats();
    let many = backend.capture(&mut |recorded| (0..50).try_for_each(|_| sum(recorded))).map_err(text)?;
    let twice = stats();
    if held.0 < allocated.0 || twice.0 - held.0 > held.0 - allocated.0 {
        return Err(format!("scratch memory isn't shared: {allocated:?}, {held:?}, {twice:?}"));
    }
    for _ in 0..3 {
        [one, many].into_iter().try_for_each(|graph| backend.replay(graph)).map_err(text)?;
    }
    expect("a replay", twice)?;
    [x, y].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)?;
    expect("freed handles", (twice.0, before.1))?;
    [one, many].into_iter().try_for_each(|graph| backend.free_graph(graph)).map_err(text)?;
    expect("freed graphs", before)
}

fn open(tested: &BackendUnderTest) -> Result<WebGpuBackend, String> {
    tested.backend()?;
    let mut backend = WebGpuBackend::select(tested.selector.strip_prefix("webgpu:").unwrap_or_default());
    backend.init().map_err(text)?;
    Ok(backend)
}

/// What only this backend has is captured where it is an operation, and refused where it is none.
fn own_operations(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = open(tested)?;
    let [a, b] = [ones(&backend, 16)?, ones(&backend, 16)?];
    let has_f16 = backend.capabilities().map_err(text)?.f16;
    let mut refused = Vec::new();
    let graph = backend.capture_with(|recorded| {
        refused.push(("flush", recorded.flush()));
        refused.push(("export_buffer", recorded.export_buffer(a).map(drop)));
        refused.push(("time", recorded.time(|_| Ok(())).map(drop)));
        refused.push(("capture_with", recorded.capture_with(|_| Ok(())).map(drop)));
        if has_f16 {
            recorded.gemm_f16(2, 2, 2, 1.0, a, a, 0.0, b)?;
        }
        recorded.fill(a, DType::F32, 16, 2.0)
    });
    let graph = graph.map_err(text)?;
    for (name, result) in refused {
        if result.as_ref().err().map(BackendError::kind) != Some(ErrorKind::Capturing) {
            return Err(format!("{name} gave {result:?}"));
        }
    }
    backend.replay(graph).map_err(text)?;
    expect_all("a", &read(&backend, a, 16)?, 2.0)?;
    backend.free_graph(graph).map_err(text)
}

/// Parameters in uniform buffers, as in browsers, and more of them than one buffer holds.
fn without_immediates(tested: &BackendUnderTest) -> Result<(), String> {
    let (instance, adapter, device, queue) = opened::open(tested, |adapter| wgpu::DeviceDescriptor {
        required_features: adapter.features() & wgpu::Features::SHADER_F16,
        required_limits: adapter.limits(),
        ..Default::default()
    })?;
    let backend = WebGpuBackend::from_wgpu(instance, adapter, device, queue).map_err(text)?;
    for case in cases().into_iter().filter(|case| case.family == "capture") {
        case.run(&backend).map_err(|failure| failure.to_string())?;
    }
    let (n, count) = (16, 5000);
    let [one, x] = [ones(&backend, n)?, ones(&backend, n)?];
    let graph = backend.capture(&mut |recorded| {
        (0..count).try_for_each(|i| recorded.binary(BinaryOp::Add, x, one, x, 1 + i % n))
    });
    let graph = graph.map_err(text)?;
    backend.replay(graph).map_err(text)?;
    backend.replay(graph).map_err(text)?;
    let counts = |i: usize| (0..count).filter(|step| step % n >= i).count();
    let expected: Vec<f32> = (0..n).map(|i| (1 + 2 * counts(i)) as f32).collect();
    let got = read(&backend, x, n)?;
    if got != expected {
        return Err(format!("got {got:?}, expected {expected:?}"));
    }
    backend.free_graph(graph).map_err(text)
}

/// A capture within a budget that has no room for its scratch memory fails and gives everything back.
fn out_of_memory(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = open(tested)?;
    let n = 1 << 20;
    let [x, y] = [ones(&backend, n)?, ones(&backend, n)?];
    backend.synchronize().map_err(text)?;
    backend.trim().map_err(text)?;
    let before = backend.memory_stats();
    backend.set_memory_budget(Some(before.in_use)).map_err(text)?;
    // The sums of a long row's slices lie in scratch memory.
    let desc = CumSumDesc::rows(DType::F32, x, y, 1, n);
    let sums = |recorded: &dyn ComputeBackend| recorded.cumsum(&desc);
    let result = backend.capture(&mut { sums });
    let kind = result.as_ref().err().map(BackendError::kind);
    if kind != Some(ErrorKind::OutOfMemory) {
        return Err(format!("the capture gave {result:?}"));
    }
    let after = backend.memory_stats();
    if after.in_use != before.in_use {
        return Err(format!("a failed capture keeps memory: {after:?}, before {before:?}"));
    }
    backend.set_memory_budget(None).map_err(text)?;
    let graph = backend.capture(&mut { sums }).map_err(text)?;
    if backend.memory_stats().in_use <= before.in_use {
        return Err("scratch memory isn't counted".to_owned());
    }
    backend.replay(graph).map_err(text)?;
    expect_all("the last sum", &read(&backend, y, n)?[n - 1..], n as f32)?;
    backend.free_graph(graph).map_err(text)?;
    let after = backend.memory_stats().in_use;
    if after == before.in_use { Ok(()) } else { Err(format!("a freed graph keeps {after} bytes")) }
}

/// A panic of what is captured leaves nothing held, and a backend that works.
fn a_panic(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = registry().create(&tested.selector).map_err(text)?;
    let (x, n) = (ones(&*backend, 64)?, 64);
    let panicking = AssertUnwindSafe(|| {
        backend.capture(&mut |recorded| {
            recorded.unary(UnaryOp::Neg, x, x, n)?;
            panic!("a capture that panics")
        })
    });
    if let Ok(captured) = catch_unwind(panicking) {
        return Err(format!("the panic was lost: {captured:?}"));
    }
    let graph = backend.capture(&mut |recorded| recorded.unary(UnaryOp::Neg, x, x, n)).map_err(text)?;
    backend.replay(graph).map_err(text)?;
    expect_all("x", &read(&*backend, x, n)?, -1.0)?;
    backend.free_graph(graph).map_err(text)?;
    backend.free(x).map_err(text)?;
    match backend.memory_stats() {
        stats if (stats.handles, stats.in_use) == (0, 0) => Ok(()),
        stats => Err(format!("left behind: {stats:?}")),
    }
}

/// Long work is submitted in parts by a replay too.
fn cuts(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = open(tested)?;
    let n = 1 << 16;
    let x = ones(&backend, n)?;
    // A fill of n elements then counts for minutes, and is halved as far as it can be.
    backend.pretend(1e6, 3).map_err(text)?;
    let graph = backend
        .capture(&mut |recorded| (0..4).try_for_each(|i| recorded.fill(x, DType::F32, n, f64::from(i))));
    let graph = graph.map_err(text)?;
    let captured = backend.cuts();
    backend.replay(graph).map_err(text)?;
    let replayed = backend.cuts();
    println!("{}: {captured} cuts after the capture, {replayed} after the replay", tested.label);
    if replayed < captured + 4 {
        return Err(format!("a replay of long work made {} cuts", replayed - captured));
    }
    expect_all("x", &read(&backend, x, n)?, 3.0)?;
    backend.free_graph(graph).map_err(text)
}
