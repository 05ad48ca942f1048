//! A thread that submits, and its end.

use std::sync::Arc;
use std::time::Duration;

use super::port::Port;
use crate::device::{Health, LastHandle};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::mpsc::{self, Receiver, RecvTimeoutError};
use crate::sync::{Mutex, thread};

/// How long whoever closes the device waits for the thread to end, unless that is set to longer.
const ENDING: Duration = Duration::from_millis(500);

/// A thread with handles of the device. Who drops this has told it to end.
#[derive(Debug)]
pub(super) struct SubmitThread {
    handle: Option<thread::JoinHandle<()>>,
    /// Disconnected when the thread has let go of the device.
    ended: Mutex<Receiver<()>>,
    /// How long a drop waits for the thread to end.
    patience_ms: AtomicU64,
}

impl SubmitThread {
    /// Has a thread do `work`; `None` if the system has no more threads.
    pub(super) fn start(name: &str, port: &Port, work: impl FnOnce() + Send + 'static) -> Option<Self> {
        let (end, ended) = mpsc::channel::<()>();
        // The thread may be the last to have a handle of the device.
        let last = LastHandle::new(&port.device);
        let health = Arc::clone(&port.health);
        let work = move || {
            let unwinds = Unwinds(health);
            work();
            drop(unwinds);
            drop(last);
            drop(end);
        };
        let handle = thread::Builder::new().name(name.to_owned()).spawn(work).ok()?;
        Some(Self { handle: Some(handle), ended: Mutex::new(ended), patience_ms: AtomicU64::new(0) })
    }

    /// Has a drop wait for the thread for so long, and a little in any case: it closes the device when nobody compiles.
    pub(super) fn set_patience(&self, patience: Duration) {
        let milliseconds = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        self.patience_ms.store(milliseconds, Ordering::Relaxed);
    }
}

/// Whoever waits for a thread in which the driver has panicked would wait in vain.
struct Unwinds(Arc<Health>);

impl Drop for Unwinds {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lose("the thread that submits has panicked");
        }
    }
}

impl Drop for SubmitThread {
    /// Waits for the thread, unless the driver keeps it. A process that ends while a thread closes a device
    /// takes the driver's own state from under it. Where a callback drops the backend in the thread itself, the thread
    /// ends after it.
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        if handle.thread().id() == thread::current().id() {
            return;
        }
        let patience = ENDING.max(Duration::from_millis(self.patience_ms.load(Ordering::Relaxed)));
        if self.ended.lock().recv_timeout(patience) == Err(RecvTimeoutError::Disconnected) {
            _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use backend_api::{ComputeBackend as _, DType, ErrorKind};

    use crate::WebGpuBackend;

    /// A callback of the caller's is made by the thread that submits, where there is one, and mustn't panic.
    #[test]
    fn a_thread_that_panics_loses_the_device() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        if !backend.context("test").unwrap().device().submitter.has_thread() {
            println!("not run: calls submit");
            return;
        }
        let ptr = backend.alloc(4).unwrap();
        backend.fill(ptr, DType::F32, 1, 1.0).and_then(|()| backend.flush()).unwrap();
        backend.queue().unwrap().on_submitted_work_done(|| panic!("a callback of the caller's"));
        let start = Instant::now();
        let told = loop {
            match backend.synchronize() {
                Ok(()) => assert!(start.elapsed() < Duration::from_secs(10), "nobody polls the device"),
                Err(error) => break error,
            }
        };
        assert_eq!(told.kind(), ErrorKind::DeviceLost);
    }
}
