//! Batches that the driver refuses: their errors reach whoever they concern, and nothing is lost but the
//! batch.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use backend_api::{BackendError, BackendResult, ComputeBackend, DType, ErrorKind};
use backend_webgpu::WebGpuBackend;
use suites::BackendUnderTest;

use super::{deadline, loss, program};

/// More refused batches with an upload than there are staging buffers.
const ROUNDS: usize = 12;

/// Elements of a buffer.
const N: usize = 1024;

fn open(tested: &BackendUnderTest) -> Result<WebGpuBackend, String> {
    let mut backend = WebGpuBackend::select(loss::index(tested)?);
    backend.init().map_err(|error| format!("{error:?}"))?;
    Ok(backend)
}

/// Records a use of a buffer that its owner has destroyed, which the driver refuses when it is submitted.
fn spoil_batch(backend: &WebGpuBackend) -> BackendResult<()> {
    let ptr = backend.alloc(4 * N)?;
    backend.export_buffer(ptr)?.0.destroy();
    backend.fill(ptr, DType::F32, N, 1.0)?;
    backend.free(ptr)
}

fn is_driver(outcome: BackendResult<()>, what: &str) -> Result<(), String> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::Driver => Ok(()),
        other => Err(format!("{what} gave {other:?}, not the driver's error")),
    }
}

/// Staging buffers come back from refused batches, so that uploads go on.
pub(crate) fn staging_comes_back(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = open(tested)?;
    deadline::within(Duration::from_secs(60), move |steps| -> Result<(), String> {
        let told = |error: BackendError| format!("{error:?}");
        let ptr = backend.alloc(4 * N).map_err(told)?;
        let mut staging = 0;
        for round in 0..ROUNDS {
            steps.begin(&format!("refused batch {round}"));
            backend.copy_htod(ptr, &[round as u8; 4 * N]).map_err(told)?;
            spoil_batch(&backend).map_err(told)?;
            is_driver(backend.synchronize(), "synchronize after a refused batch")?;
            // The batch's buffer is mapped again before the next one needs a buffer.
            let device = backend.device().ok_or("no device")?;
            device.poll(wgpu::PollType::wait_indefinitely()).map_err(|error| error.to_string())?;
            if round == 0 {
                staging = backend.memory_stats().staging;
            }
        }
        steps.begin("an upload after the refused batches");
        backend.copy_htod(ptr, &[7; 4 * N]).map_err(told)?;
        let now = backend.memory_stats().staging;
        let mut got = vec![0; 4 * N];
        backend.copy_dtoh(&mut got, ptr).map_err(told)?;
        if got != [7; 4 * N] {
            return Err(format!("the upload after the refused batches is {}", got[0]));
        }
        if now != staging {
            return Err(format!("staging memory grew from {staging} to {now} bytes"));
        }
        program::check(&backend)
    })?
}

/// A late error is told once to each thread that may have lost work, and to later ones that read what it
/// spoiled.
pub(crate) fn every_thread_is_told(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = open(tested)?;
    let told = |error: BackendError| format!("{error:?}");
    let [spoiled, whole] = [backend.alloc(4 * N).map_err(told)?, backend.alloc(4 * N).map_err(told)?];
    for ptr in [spoiled, whole] {
        backend.fill(ptr, DType::F32, N, 1.0).map_err(told)?;
    }
    backend.synchronize().map_err(told)?;
    let read = |ptr| {
        let mut first = [0f32];
        backend.copy_dtoh(bytemuck::cast_slice_mut(&mut first), ptr).map(|()| first[0])
    };
    thread::scope(|scope| {
        let (go, wait) = channel();
        let (done, finished) = channel();
        let (backend, read) = (&backend, &read);
        // A user of the backend from before the error, which is told first.
        scope.spawn(move || {
            let before = backend.synchronize();
            _ = done.send(before);
            _ = wait.recv();
            _ = done.send(backend.synchronize());
        });
        finished.recv().map_err(|error| error.to_string())?.map_err(told)?;
        backend.fill(spoiled, DType::F32, N, 5.0).map_err(told)?;
        spoil_batch(backend).map_err(told)?;
        backend.flush().map_err(told)?;
        // Where a thread of its own submits, the error is there when its batch is over.
        thread::sleep(Duration::from_millis(200));
        go.send(()).map_err(|error| error.to_string())?;
        is_driver(finished.recv().map_err(|error| error.to_string())?, "the other thread's synchronize")?;
        is_driver(read(spoiled).map(drop), "the read of the thread whose work was lost")?;
        match read(spoiled) {
            Ok(1.0) => {}
            other => return Err(format!("the second read gave {other:?}, not what was there before")),
        }
        let later = scope.spawn(move || {
            let unspoiled = read(whole);
            (unspoiled, read(spoiled), read(spoiled))
        });
        match later.join().map_err(|_| "a panic")? {
            (Ok(1.0), Err(error), Ok(1.0)) if error.kind() == ErrorKind::Driver => Ok(()),
            other => Err(format!("a later thread's reads gave {other:?}")),
        }
    })?;
    program::check(&backend)
}

/// The error of a batch is that of the read that submits it, whoever else asks meanwhile.
pub(crate) fn a_read_of_a_refused_batch(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = open(tested)?;
    let told = |error: BackendError| format!("{error:?}");
    let ptr = backend.alloc(4 * N).map_err(told)?;
    let before: Vec<u8> = (0..4 * N).map(|i| i as u8).collect();
    backend.copy_htod(ptr, &before).map_err(told)?;
    let mut dst = vec![0; 4 * N];
    backend.copy_dtoh(&mut dst, ptr).map_err(told)?;
    spoil_batch(&backend).map_err(told)?;
    let mut dst = vec![9; 4 * N];
    is_driver(backend.copy_dtoh(&mut dst, ptr), "the read that submits a refused batch")?;
    if dst.iter().any(|&byte| byte != 9) {
        return Err("a failed read has written its destination".to_owned());
    }
    program::check(&backend)
}

/// What spoiled memory is forgotten when it is freed and allocated anew: a thread that begins later and reads
/// it is told of nothing.
pub(crate) fn reused_memory_is_whole(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = open(tested)?;
    let told = |error: BackendError| format!("{error:?}");
    let ptr = backend.alloc(4 * N).map_err(told)?;
    backend.fill(ptr, DType::F32, N, 1.0).map_err(told)?;
    spoil_batch(&backend).map_err(told)?;
    is_driver(backend.synchronize(), "synchronize after a refused batch")?;
    backend.free(ptr).map_err(told)?;
    let ptr = backend.alloc(4 * N).map_err(told)?;
    backend.copy_htod(ptr, &[3; 4 * N]).map_err(told)?;
    let mut got = vec![0; 4 * N];
    let read = thread::scope(|scope| scope.spawn(|| backend.copy_dtoh(&mut got, ptr)).join());
    match read.map_err(|_| "a panic")? {
        Ok(()) if got == [3; 4 * N] => program::check(&backend),
        Ok(()) => Err(format!("the memory is {}", got[0])),
        Err(error) => Err(format!("a later thread's read of memory that was allocated anew gave {error:?}")),
    }
}
