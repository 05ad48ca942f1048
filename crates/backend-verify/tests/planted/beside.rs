//! Reads while another thread changes memory.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use backend_api::{BackendFuture, BackendResult, Command, ComputeBackend, DType, forward};
use backend_cpu::CpuBackend;
use backend_verify::VerifyBackend;
use libtest_mimic::Failed;

type Work = Box<dyn FnOnce() + Send>;

/// The CPU, which does something else once it has read without blocking.
struct Interrupted {
    inner: CpuBackend,
    then: Arc<Mutex<Option<Work>>>,
}

impl std::fmt::Debug for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl ComputeBackend for Interrupted {
    fn copy_dtoh_async<'a>(&'a self, dst: &'a mut [u8], src: u64) -> BackendFuture<'a, ()> {
        Box::pin(async move {
            self.inner.copy_dtoh(dst, src)?;
            let then = self.then.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(then) = then {
                then();
            }
            Ok(())
        })
    }

    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        self.inner.execute(op, command)
    }

    forward!(this => this.inner; name, init, is_initialized, synchronize, alloc, alloc_zeroed, free, view);
    forward!(this => this.inner; copy_htod, copy_dtoh, capture, replay, free_graph);
    forward!(this => this.inner; capabilities, device_info, memory_stats, trim, set_memory_budget, as_any);
}

/// Longer than the other thread's call takes where nothing keeps it.
const A_CALL: Duration = Duration::from_millis(300);

/// Another thread's call comes before the reads of both backends or after them, never in between.
pub(crate) fn reads_begin_together() -> Result<(), Failed> {
    let told = |error| Failed::from(format!("{error:?}"));
    let first = Interrupted { inner: CpuBackend::new(), then: Arc::default() };
    let slot = Arc::clone(&first.then);
    let pair = VerifyBackend::new(Box::new(first), Box::new(CpuBackend::new())).map_err(told)?;
    let backend = Arc::new(pair);
    let ptr = backend.alloc_zeroed(256).map_err(told)?;
    let (writes, written) = mpsc::channel();
    let other = Arc::clone(&backend);
    let write = move || {
        let (done, is_done) = mpsc::channel();
        let writer = thread::spawn(move || {
            let outcome = other.fill(ptr, DType::F32, 64, 1.0);
            _ = done.send(());
            outcome
        });
        _ = is_done.recv_timeout(A_CALL);
        _ = writes.send(writer);
    };
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(write));
    let mut got = [7u8; 256];
    {
        let mut read = backend.copy_dtoh_async(&mut got, ptr);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            match read.as_mut().poll(&mut context) {
                Poll::Ready(outcome) => break outcome.map_err(told)?,
                Poll::Pending => thread::yield_now(),
            }
        }
    }
    if got != [0; 256] {
        return Err("the read has what was written after it".into());
    }
    let writer = written.recv().map_err(|_| "nothing was written")?;
    writer.join().map_err(|_| "the other thread panicked")?.map_err(told)
}
