//! No call waits much longer than the timeout, while the device is busy for much longer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use backend_api::{BackendError, BackendResult, BackendTranspose::NoTrans, ComputeBackend, DType, UnaryOp};
use backend_webgpu::WebGpuBackend;
use suites::BackendUnderTest;

use super::loss;

const TIMEOUT: Duration = Duration::from_millis(300);

/// How much later than the timeout a call may come back.
const GRACE: Duration = Duration::from_secs(1);

/// Rows and columns of the products that keep the device busy.
const N: usize = 768;

/// Elements of what the calls work on.
const SMALL: usize = 1024;

/// Bytes of an upload in many pieces.
const LONG: usize = 64 << 20;

/// A backend of its own; `None` for Mesa's OpenGL, which on a CPU computes in the thread that gives it the work:
/// docs/reliability.md.
fn opened(tested: &BackendUnderTest) -> Result<Option<WebGpuBackend>, String> {
    let mut backend = WebGpuBackend::select(loss::index(tested)?);
    backend.init().map_err(told)?;
    let is_gl = backend.device_info().is_ok_and(|device| device.api == "Gl");
    Ok(Some(backend).filter(|_| !is_gl))
}

fn told(error: BackendError) -> String {
    format!("{error:?}")
}

pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    let Some(backend) = opened(tested)? else { return Ok(()) };
    let alloc = |elements: usize, value: f64| {
        let ptr = backend.alloc(4 * elements)?;
        backend.fill(ptr, DType::F32, elements, value)?;
        Ok(ptr)
    };
    let (a, c, x) = (
        alloc(N * N, 1.0).map_err(told)?,
        alloc(N * N, 0.0).map_err(told)?,
        alloc(SMALL, 1.0).map_err(told)?,
    );
    // Compiles what is used below.
    backend.gemm(NoTrans, NoTrans, N, N, N, 1.0, a, N, a, N, 0.0, c, N).map_err(told)?;
    backend.unary(UnaryOp::Neg, x, x, SMALL).map_err(told)?;
    // At an odd byte, each of an upload's pieces needs memory, staging buffers and a launch.
    let long = vec![7; LONG];
    let ptr = backend.alloc(LONG + 4).map_err(told)?;
    let odd = backend.view(ptr, 1, LONG).map_err(told)?;
    backend.copy_htod(odd, &long).map_err(told)?;
    backend.synchronize().map_err(told)?;

    backend.set_timeout(TIMEOUT).map_err(told)?;
    let start = Instant::now();
    let mut negated = 1;
    let mut timeouts = 0;
    while start.elapsed() < Duration::from_secs(4) {
        for _ in 0..8 {
            timed("gemm", || backend.gemm(NoTrans, NoTrans, N, N, N, 1.0, a, N, a, N, 0.0, c, N))?;
        }
        if timed("unary in place", || backend.unary(UnaryOp::Neg, x, x, SMALL))? {
            negated += 1;
        } else {
            timeouts += 1;
        }
        timed("fill", || backend.fill(c, DType::F32, N * N, 0.0))?;
        timed("copy_htod", || backend.copy_htod(c, &[0; 4096]))?;
        timed("copy_htod at an odd byte", || backend.copy_htod(odd, &long))?;
        timed("alloc", || backend.alloc(1 << 20).and_then(|ptr| backend.free(ptr)))?;
        timed("flush", || backend.flush())?;
        timed("synchronize", || backend.synchronize())?;
    }
    println!("{}: {negated} calls made, {timeouts} given up", tested.label);
    // A call that gave up has done nothing, so the sign tells how many were made.
    backend.set_timeout(Duration::from_secs(120)).map_err(told)?;
    let mut got = vec![0f32; SMALL];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), x).map_err(told)?;
    let sign = if negated % 2 == 0 { 1.0 } else { -1.0 };
    if got.iter().any(|&x| x != sign) {
        return Err(format!("after {negated} negations: {}", got[0]));
    }
    backend.set_timeout(TIMEOUT).map_err(told)?;
    for _ in 0..32 {
        timed("gemm", || backend.gemm(NoTrans, NoTrans, N, N, N, 1.0, a, N, a, N, 0.0, c, N))?;
    }
    timed("flush", || backend.flush())?;
    let start = Instant::now();
    drop(backend);
    if start.elapsed() > TIMEOUT + GRACE {
        return Err(format!("drop took {:?} with a timeout of {TIMEOUT:?}", start.elapsed()));
    }
    Ok(())
}

/// Bytes of the staging piece in which an upload to an odd byte is made.
const PIECE: usize = 16 << 20;

/// Pieces of an upload that waits for memory before each piece but the first.
const PIECES: usize = 16;

/// The timeout of a call that waits often: each wait is short beside it, and all of them together are long.
const LONGER: Duration = Duration::from_millis(800);

/// A call that waits often waits no longer than one timeout in all. A budget has room for one piece of an upload, so
/// each further piece waits for the one before it, which is behind what another thread keeps the device busy with:
/// a third of the timeout each time.
pub(crate) fn of_one_call(tested: &BackendUnderTest) -> Result<(), String> {
    let Some(backend) = opened(tested)? else { return Ok(()) };
    let (a, c) = (backend.alloc(4 * N * N).map_err(told)?, backend.alloc(4 * N * N).map_err(told)?);
    backend.fill(a, DType::F32, N * N, 1.0).map_err(told)?;
    let long = vec![7; PIECES * PIECE];
    let ptr = backend.alloc(long.len() + 4).map_err(told)?;
    let odd = backend.view(ptr, 1, long.len()).map_err(told)?;
    // Compiles what is used below.
    backend.copy_htod(odd, &long[..PIECE]).map_err(told)?;
    let product = || backend.gemm(NoTrans, NoTrans, N, N, N, 1.0, a, N, a, N, 0.0, c, N);
    product().and_then(|()| backend.synchronize()).map_err(told)?;
    let start = Instant::now();
    (0..4).try_for_each(|_| product()).and_then(|()| backend.synchronize()).map_err(told)?;
    let products = (LONGER.as_secs_f64() / 3.0 / (start.elapsed().as_secs_f64() / 4.0)).ceil() as usize;

    backend.trim().map_err(told)?;
    let held = backend.memory_stats().in_use;
    backend.set_memory_budget(Some(held + PIECE + PIECE / 2)).map_err(told)?;
    backend.set_timeout(LONGER).map_err(told)?;
    let is_over = AtomicBool::new(false);
    let outcome = thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..products {
                    // Its own waits may end by the timeout; the device is busy then.
                    _ = product();
                }
                _ = backend.flush();
                _ = backend.synchronize();
            }
        });
        thread::sleep(LONGER / 8);
        let start = Instant::now();
        let outcome = backend.copy_htod(odd, &long);
        let took = start.elapsed();
        is_over.store(true, Ordering::Relaxed);
        (outcome, took)
    });
    println!("{}: {products} products, {outcome:?}", tested.label);
    match outcome {
        (_, took) if took > LONGER + GRACE => {
            Err(format!("copy_htod in {PIECES} pieces took {took:?} with a timeout of {LONGER:?}"))
        }
        // Memory that hasn't come back when the time is up is none.
        (Ok(()) | Err(BackendError::Timeout { .. } | BackendError::OutOfMemory { .. }), _) => Ok(()),
        (Err(error), _) => Err(format!("copy_htod in {PIECES} pieces: {error:?}")),
    }
}

/// Products in flight during these calls.
const IN_FLIGHT: usize = 8;

/// The timeout of these calls, short beside a product on a CPU.
const SHORT: Duration = Duration::from_millis(20);

/// No call waits for another thread's submission beyond its timeout: some drivers keep one until the work before it has
/// finished, and wgpu has locks as long.
pub(crate) fn while_submitting(tested: &BackendUnderTest) -> Result<(), String> {
    let Some(backend) = opened(tested)? else { return Ok(()) };
    let alloc = || backend.alloc(4 * N * N).map_err(told);
    let (a, b, c) = (alloc()?, alloc()?, alloc()?);
    backend.fill(a, DType::F32, N * N, 1.0).map_err(told)?;
    let product = || backend.gemm(NoTrans, NoTrans, N, N, N, 1.0, a, N, a, N, 0.0, c, N);
    // Compiles what is used below.
    backend.unary(UnaryOp::Neg, a, b, SMALL).map_err(told)?;
    product().and_then(|()| backend.synchronize()).map_err(told)?;
    let start = Instant::now();
    product().and_then(|()| backend.synchronize()).map_err(told)?;
    // Who waits for a submission waits for most of a product; where that is short, nothing is seen.
    let grace = (start.elapsed() / 2).max(Duration::from_millis(250));
    for _ in 0..IN_FLIGHT {
        product().map_err(told)?;
    }
    // A thread of the backend's is at a submission.
    thread::sleep(grace / 4);
    backend.set_timeout(SHORT).map_err(told)?;
    let (mut bytes, host) = (vec![0; 4 * SMALL], vec![0; 4 * N * N]);
    let mut given_up = Vec::new();
    let mut timed = |what: &'static str, call: &mut dyn FnMut() -> BackendResult<()>| {
        let worked = within(SHORT, grace, what, call)?;
        given_up.extend((!worked).then_some(what));
        Ok::<_, String>(())
    };
    timed("synchronize", &mut || backend.synchronize())?;
    timed("alloc", &mut || backend.alloc(LONG).and_then(|ptr| backend.free(ptr)))?;
    timed("copy_htod", &mut || backend.copy_htod(b, &host))?;
    timed("copy_dtoh", &mut || backend.copy_dtoh(&mut bytes, a))?;
    timed("copy_dtod", &mut || backend.copy_dtod(b, a, 4 * SMALL))?;
    timed("unary", &mut || backend.unary(UnaryOp::Neg, b, b, SMALL))?;
    timed("fill", &mut || backend.fill(b, DType::F32, SMALL, 0.0))?;
    timed("view", &mut || backend.view(b, 4, 4).and_then(|view| backend.free(view)))?;
    timed("free", &mut || backend.free(b))?;
    timed("trim", &mut || backend.trim().map(drop))?;
    timed("flush", &mut || backend.flush())?;
    timed("capture", &mut || {
        let graph = backend.capture(&mut |on| on.unary(UnaryOp::Neg, a, a, SMALL))?;
        backend.free_graph(graph)
    })?;
    println!("{}: gave up: {given_up:?}, none of them {grace:?} late", tested.label);
    backend.set_timeout(Duration::from_secs(120)).map_err(told)?;
    let mut got = vec![0f32; N * N];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), c).map_err(told)?;
    match got.iter().find(|&&x| x != N as f32) {
        None => Ok(()),
        Some(x) => Err(format!("a product of ones has {x}, not {N}")),
    }
}

/// Whether the call worked; it may give up, but not late.
fn timed(what: &str, call: impl FnOnce() -> BackendResult<()>) -> Result<bool, String> {
    within(TIMEOUT, GRACE, what, call)
}

/// Whether the call worked; it may give up after the timeout, and at most so much later.
fn within(
    timeout: Duration,
    grace: Duration,
    what: &str,
    call: impl FnOnce() -> BackendResult<()>,
) -> Result<bool, String> {
    let start = Instant::now();
    let outcome = call();
    let took = start.elapsed();
    if took > timeout + grace {
        return Err(format!("{what} took {took:?} with a timeout of {timeout:?}"));
    }
    match outcome {
        Ok(()) => Ok(true),
        Err(BackendError::Timeout { .. }) => Ok(false),
        Err(error) => Err(format!("{what}: {error:?}")),
    }
}
