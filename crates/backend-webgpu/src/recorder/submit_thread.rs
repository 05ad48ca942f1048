//! A thread that submits, and its end.

use std::time::Duration;

use super::submitter::Port;
use crate::device::LastHandle;
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
        let work = move || {
            work();
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
