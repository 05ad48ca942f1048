//! Backends that are lost, and reads that are cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use backend_api::{BackendError, BackendFuture, BackendResult, Command, ComputeBackend, DType, forward};
use backend_cpu::CpuBackend;
use backend_verify::VerifyBackend;
use libtest_mimic::Failed;

/// What becomes of a device.
#[derive(Debug, Default)]
struct Fate {
    is_lost: AtomicBool,
    /// How often it can't be opened.
    refusals: AtomicUsize,
}

/// The CPU, as a device that may be lost.
#[derive(Debug)]
struct Mortal {
    inner: CpuBackend,
    fate: Arc<Fate>,
}

impl Mortal {
    fn new() -> (Self, Arc<Fate>) {
        let fate = Arc::<Fate>::default();
        (Self { inner: CpuBackend::new(), fate: Arc::clone(&fate) }, fate)
    }
}

impl ComputeBackend for Mortal {
    fn is_initialized(&self) -> bool {
        !self.fate.is_lost.load(Ordering::Relaxed)
    }

    fn init(&mut self) -> BackendResult<()> {
        if self.is_initialized() {
            return Ok(());
        }
        let fewer = |count: usize| count.checked_sub(1);
        if self.fate.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok() {
            return Err(BackendError::NoAdapter { tried: Vec::new() });
        }
        self.inner = CpuBackend::new();
        self.fate.is_lost.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// It is never ready.
    fn copy_dtoh_async<'a>(&'a self, _: &'a mut [u8], _: u64) -> BackendFuture<'a, ()> {
        Box::pin(std::future::pending())
    }

    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        self.inner.execute(op, command)
    }

    forward!(this => this.inner; name, synchronize, alloc, alloc_zeroed, free, view);
    forward!(this => this.inner; copy_htod, copy_dtoh, capture, replay, free_graph);
    forward!(this => this.inner; capabilities, device_info, memory_stats, trim, set_memory_budget, as_any);
}

fn told(error: BackendError) -> Failed {
    format!("{error:?}").into()
}

/// Whichever of the two is lost, and whichever can't be opened at once, the pair opens in the end, and what was left of the
/// other's memory is given back.
pub(crate) fn lost_ones_are_opened_again() -> Result<(), Failed> {
    for lost in [[true, false], [false, true], [true, true]] {
        for refused in [None, Some(0), Some(1)] {
            if refused.is_some_and(|refused: usize| !lost[refused]) {
                continue;
            }
            let [(first, one), (second, other)] = [Mortal::new(), Mortal::new()];
            let mut backend = VerifyBackend::new(Box::new(first), Box::new(second)).map_err(told)?;
            let x = backend.alloc_zeroed(256).map_err(told)?;
            let graph =
                backend.capture(&mut |recorded| recorded.fill(x, DType::F32, 64, 1.0)).map_err(told)?;
            let fates = [one, other];
            for (fate, is_lost) in fates.iter().zip(lost) {
                fate.is_lost.store(is_lost, Ordering::Relaxed);
            }
            if let Some(refused) = refused {
                fates[refused].refusals.store(1, Ordering::Relaxed);
                if backend.init().is_ok() {
                    return Err("what can't be opened was".into());
                }
            }
            backend.init().map_err(|error| format!("{lost:?}, {refused:?}: {error:?}"))?;
            let handles = [backend.first(), backend.second()].map(|backend| backend.memory_stats().handles);
            if handles != [0, 0] || backend.replay(graph).is_ok() || backend.free(x).is_ok() {
                return Err(format!("{lost:?}, {refused:?}: {handles:?} handles are left").into());
            }
            let y = backend.alloc(256).map_err(told)?;
            backend.fill(y, DType::F32, 64, 1.0).map_err(told)?;
        }
    }
    Ok(())
}

/// Also where one of the two has read already.
pub(crate) fn a_cancelled_read_leaves_its_destination() -> Result<(), Failed> {
    let backend = VerifyBackend::new(Box::new(CpuBackend::new()), Box::new(Mortal::new().0)).map_err(told)?;
    let x = backend.alloc_zeroed(256).map_err(told)?;
    let mut bytes = [7; 256];
    let mut read = backend.copy_dtoh_async(&mut bytes, x);
    if read.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
        return Err("the second has yet to read".into());
    }
    drop(read);
    if bytes == [7; 256] { Ok(()) } else { Err("a read that was cancelled has written".into()) }
}
