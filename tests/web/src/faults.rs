//! What only a browser can get wrong: calls that would block, a device that is lost while a page lives, no
//! WebGPU.

use std::future::Future;

use backend_api::{BackendError, BackendResult, BinaryOp, ComputeBackend, ErrorKind, Operation};
use backend_webgpu::WebGpuBackend;

type Outcome = Result<(), String>;

pub(crate) async fn run() -> Vec<String> {
    let mut failures = Vec::new();
    check(&mut failures, "blocking_calls_would_block", blocking()).await;
    check(&mut failures, "a_warm_up_is_enough", warm_up()).await;
    check(&mut failures, "a_lost_device_is_told_and_replaced", loss()).await;
    check(&mut failures, "a_read_on_its_way_learns_of_the_loss", loss_during_a_read()).await;
    failures
}

pub(crate) async fn without_webgpu() -> Vec<String> {
    let mut failures = Vec::new();
    check(&mut failures, "no_webgpu_is_no_adapter", no_adapter()).await;
    check(&mut failures, "auto_picks_the_cpu", fallback()).await;
    failures
}

async fn check(failures: &mut Vec<String>, name: &str, test: impl Future<Output = Outcome>) {
    match test.await {
        Ok(()) => super::log(&format!("test faults/{name} ... ok")),
        Err(text) => {
            super::log(&format!("test faults/{name} ... FAILED"));
            failures.push(format!("{name}: {text}"));
        }
    }
}

fn text(error: BackendError) -> String {
    format!("{error:?}")
}

fn expect<T>(what: &str, result: BackendResult<T>, kind: ErrorKind) -> Outcome {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => Err(format!("{what}: {error:?}, expected {kind:?}")),
        Ok(_) => Err(format!("{what} succeeded, expected {kind:?}")),
    }
}

async fn opened() -> Result<WebGpuBackend, String> {
    let mut backend = WebGpuBackend::default();
    backend.init_async().await.map_err(text)?;
    Ok(backend)
}

/// The sum of two vectors of 1000 ones.
async fn adds(backend: &WebGpuBackend) -> Outcome {
    let x = backend.alloc(4000).map_err(text)?;
    let ones: Vec<u8> = std::iter::repeat_n(1f32.to_le_bytes(), 1000).flatten().collect();
    backend.copy_htod(x, &ones).map_err(text)?;
    backend.binary(BinaryOp::Add, x, x, x, 1000).map_err(text)?;
    let mut bytes = vec![0; 4000];
    backend.copy_dtoh_async(&mut bytes, x).await.map_err(text)?;
    backend.free(x).map_err(text)?;
    let twos: Vec<u8> = std::iter::repeat_n(2f32.to_le_bytes(), 1000).flatten().collect();
    if bytes == twos { Ok(()) } else { Err(String::from("1 + 1 is not 2")) }
}

async fn blocking() -> Outcome {
    let mut closed = WebGpuBackend::default();
    expect("init", closed.init(), ErrorKind::WouldBlock)?;
    let backend = opened().await?;
    let x = backend.alloc(4).map_err(text)?;
    expect("copy_dtoh", backend.copy_dtoh(&mut [0; 4], x), ErrorKind::WouldBlock)?;
    expect("synchronize", backend.synchronize(), ErrorKind::WouldBlock)?;
    expect("time", backend.time(|_| Ok(())), ErrorKind::WouldBlock)?;
    if backend.capabilities().map_err(text)?.blocking {
        return Err(String::from("capabilities() claims that blocking calls work"));
    }
    adds(&backend).await
}

async fn warm_up() -> Outcome {
    let backend = opened().await?;
    let x = backend.alloc(4000).map_err(text)?;
    let add = |backend: &dyn ComputeBackend| backend.binary(BinaryOp::Add, x, x, x, 1000);
    let operations: [Operation<'_>; 1] = [&add];
    backend.warm_up_async(&operations).await.map_err(text)?;
    let warm = backend.compiled_kernels();
    adds(&backend).await?;
    match (warm, backend.compiled_kernels()) {
        (0, _) => Err(String::from("nothing was compiled")),
        (before, after) if before == after => Ok(()),
        (before, after) => Err(format!("{before} kernels after the warm-up, {after} after the call")),
    }
}

async fn loss() -> Outcome {
    let mut backend = opened().await?;
    adds(&backend).await?;
    let old = backend.alloc(16).map_err(text)?;
    // Nothing of an upload may be left in a mapping, which the loss takes away with an exception for whoever writes there.
    backend.copy_htod(old, &[0; 16]).map_err(text)?;
    backend.device().ok_or("there is no device")?.destroy();
    // The page hears of the loss in a later turn of its loop, so this may still be recorded, or be the loss.
    match backend.copy_htod(old, &[0; 16]).and_then(|()| backend.binary(BinaryOp::Add, old, old, old, 4)) {
        Ok(()) | Err(BackendError::DeviceLost { .. }) => {}
        Err(error) => return Err(format!("calls right after the loss: {error:?}")),
    }
    expect("copy_dtoh_async", backend.copy_dtoh_async(&mut [0; 16], old).await, ErrorKind::DeviceLost)?;
    expect("alloc", backend.alloc(4), ErrorKind::DeviceLost)?;
    expect("synchronize_async", backend.synchronize_async().await, ErrorKind::DeviceLost)?;
    expect("warm_up_async", backend.warm_up_async(&[]).await, ErrorKind::DeviceLost)?;
    if backend.is_initialized() {
        return Err(String::from("is_initialized() is true after the loss"));
    }
    backend.init_async().await.map_err(text)?;
    expect("an old handle", backend.free(old), ErrorKind::InvalidHandle)?;
    adds(&backend).await
}

async fn loss_during_a_read() -> Outcome {
    let backend = opened().await?;
    let x = backend.alloc(4 << 20).map_err(text)?;
    for _ in 0..100 {
        backend.binary(BinaryOp::Add, x, x, x, 1 << 20).map_err(text)?;
    }
    let mut bytes = vec![0; 4 << 20];
    let read = backend.copy_dtoh_async(&mut bytes, x);
    let device = backend.device().ok_or("there is no device")?.clone();
    // The read is polled first, so the loss comes while it waits.
    let destroy = async {
        device.destroy();
    };
    let (result, ()) = both(read, destroy).await;
    expect("the read", result, ErrorKind::DeviceLost)
}

/// Both futures, polled in order.
async fn both<A: Future + Unpin, B: Future>(mut a: A, b: B) -> (A::Output, B::Output) {
    let mut early = None;
    std::future::poll_fn(|context| {
        if let std::task::Poll::Ready(value) = std::pin::Pin::new(&mut a).poll(context) {
            early = Some(value);
        }
        std::task::Poll::Ready(())
    })
    .await;
    let b = b.await;
    match early {
        Some(a) => (a, b),
        None => (a.await, b),
    }
}

async fn no_adapter() -> Outcome {
    let mut backend = WebGpuBackend::default();
    match backend.init_async().await {
        Err(BackendError::NoAdapter { tried }) if tried.iter().any(|text| text.contains("navigator.gpu")) => {
            Ok(())
        }
        other => Err(format!("{other:?}, expected NoAdapter that names navigator.gpu")),
    }
}

async fn fallback() -> Outcome {
    let selection = super::open("auto").await.map_err(text)?;
    if selection.backend.name() == "cpu" { Ok(()) } else { Err(format!("auto picked {selection:?}")) }
}
