//! No call waits much longer than the timeout, while the device is busy for much longer.

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

pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    let told = |error: BackendError| format!("{error:?}");
    let mut backend = WebGpuBackend::select(loss::index(tested)?);
    backend.init().map_err(told)?;
    if backend.device_info().is_ok_and(|device| device.api == "Gl") {
        // Mesa's OpenGL on a CPU computes in the thread that gives it the work: docs/reliability.md.
        return Ok(());
    }
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

/// Whether the call worked; it may give up, but not late.
fn timed(what: &str, call: impl FnOnce() -> BackendResult<()>) -> Result<bool, String> {
    let start = Instant::now();
    let outcome = call();
    let took = start.elapsed();
    if took > TIMEOUT + GRACE {
        return Err(format!("{what} took {took:?} with a timeout of {TIMEOUT:?}"));
    }
    match outcome {
        Ok(()) => Ok(true),
        Err(BackendError::Timeout { .. }) => Ok(false),
        Err(error) => Err(format!("{what}: {error:?}")),
    }
}
