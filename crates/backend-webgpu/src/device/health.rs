//! Whether the device still works, and what it reported late.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

use backend_api::{BackendError, BackendResult, Diagnostic};

use super::{GuardedDevice, guarded, guarded_async};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{self, Instant, Mutex, thread_local};

/// The state that wgpu's callbacks write and every call reads.
#[derive(Debug)]
pub(crate) struct Health {
    lost: AtomicBool,
    reason: Mutex<String>,
    late: Mutex<LateErrors>,
    /// The number of the newest late error, counted from 1.
    newest: AtomicU64,
    opened: Instant,
    /// When the device was last polled, in microseconds after `opened`.
    polled: AtomicU64,
}

/// Late errors with their numbers, the first ones of many.
#[derive(Debug, Default)]
struct LateErrors(Vec<(u64, LateError)>);

/// Late errors that are kept.
const MAX_LATE: usize = 16;

/// Which late errors a thread needn't be told.
///
/// A thread that has used the backend before an error may have lost work to it, and is told at its next read
/// or synchronize, once. One that begins later is told where it reads memory that the error may have spoiled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Witness {
    /// Whose it is: a future may finish on another thread, which is told for that one and not for itself.
    thread: ThreadId,
    /// The newest error when the thread first used the backend.
    joined: u64,
    /// The newest error when the thread was last told of one.
    told: u64,
}

thread_local! {
    /// What this thread knows of each backend that it uses.
    static WITNESSES: RefCell<Vec<(Weak<Health>, Witness)>> = const { RefCell::new(Vec::new()) };
}

/// wgpu tells of a loss only when it is polled, which costs as much as recording a dispatch. So a loss is
/// noticed after this time, or at the next call that waits.
const POLL_INTERVAL: Duration = Duration::from_micros(200);

/// The time between polls where a thread of its own polls the device, which each poll interrupts.
const THREADED_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// An error that no call was there to receive.
#[derive(Clone, Debug)]
enum LateError {
    OutOfMemory,
    Driver(Diagnostic),
}

impl Health {
    /// A state that nothing but its own users write.
    pub(crate) fn detached() -> Arc<Self> {
        Arc::new(Self {
            lost: AtomicBool::new(false),
            reason: Mutex::default(),
            late: Mutex::default(),
            newest: AtomicU64::new(0),
            opened: Instant::now(),
            polled: AtomicU64::new(0),
        })
    }

    /// A state that follows `device`: its lost callback and its late errors end up here.
    pub(crate) fn watch(device: &GuardedDevice) -> Arc<Self> {
        let health = Self::detached();
        let for_loss = Arc::clone(&health);
        device.set_device_lost_callback(move |reason, message| {
            let health = Arc::clone(&for_loss);
            sync::deliver(move || health.lose(&format!("{reason:?}: {message}")));
        });
        let for_errors = Arc::clone(&health);
        device.on_late_error(move |error| {
            let health = Arc::clone(&for_errors);
            sync::deliver(move || _ = health.report(error));
        });
        health
    }

    /// Marks the device as lost. The first reason stays.
    pub(crate) fn lose(&self, reason: &str) {
        let mut known = self.reason.lock();
        if !self.lost.swap(true, Ordering::Release) {
            tracing::error!(reason, "the device is lost");
            reason.clone_into(&mut known);
        }
    }

    /// Marks the device as lost because wgpu no longer knows a submission, which is how it answers a wait after a loss.
    pub(crate) fn lose_submission(&self, error: &wgpu::PollError) {
        self.lose(&format!("work that was submitted is gone: {error}"));
    }

    /// Keeps an error for the next read or synchronize of every thread that it concerns; its number.
    pub(crate) fn report(&self, error: wgpu::Error) -> u64 {
        tracing::error!(%error, "the driver reported an error that no call was waiting for");
        let error = match error {
            wgpu::Error::OutOfMemory { .. } => LateError::OutOfMemory,
            other => LateError::Driver(Diagnostic::new(other.to_string())),
        };
        let mut late = self.late.lock();
        let number = self.newest.load(Ordering::Relaxed) + 1;
        if late.0.len() == MAX_LATE {
            late.0.remove(0);
        }
        late.0.push((number, error));
        self.newest.store(number, Ordering::Release);
        number
    }

    pub(crate) fn has_late_errors(&self) -> bool {
        self.newest.load(Ordering::Acquire) > 0
    }

    /// What this thread knows of late errors; it counts as a user of the backend from its first call on.
    pub(crate) fn witness(self: &Arc<Self>) -> Witness {
        let joins = || {
            let joined = self.newest.load(Ordering::Acquire);
            Witness { thread: thread::current().id(), joined, told: 0 }
        };
        // A thread that ends calls from destructors of its locals when these may be gone already.
        let known = WITNESSES.try_with(|known| {
            let mut known = known.borrow_mut();
            let here = Arc::as_ptr(self);
            if let Some((_, witness)) = known.iter().find(|(health, _)| health.as_ptr() == here) {
                return *witness;
            }
            known.retain(|(health, _)| health.strong_count() > 0);
            let witness = joins();
            known.push((Arc::downgrade(self), witness));
            witness
        });
        known.unwrap_or_else(|_| joins())
    }

    /// The first late error that a thread has yet to be told of, if it may have spoiled what the thread
    /// reads: a read must not return what a failed operation should have written. `spoiled` is the newest
    /// error that concerns the memory read.
    ///
    /// # Errors
    /// The late error.
    pub(crate) fn take_late(
        self: &Arc<Self>,
        op: &'static str,
        witness: Witness,
        spoiled: u64,
        in_use: impl FnOnce() -> usize,
    ) -> BackendResult<()> {
        let newest = self.newest.load(Ordering::Acquire);
        let known = witness.joined.max(witness.told);
        if newest <= known && spoiled <= witness.told {
            return Ok(());
        }
        let after = if newest > known { known } else { spoiled - 1 };
        _ = WITNESSES.try_with(|all| {
            let mut all = all.borrow_mut();
            let here = Arc::as_ptr(self);
            let own =
                all.iter_mut().find(|(health, own)| health.as_ptr() == here && own.thread == witness.thread);
            if let Some((_, own)) = own {
                own.told = newest;
            }
        });
        let late = self.late.lock();
        match late.0.iter().find(|&&(number, _)| number > after).or_else(|| late.0.last()) {
            None => Ok(()),
            Some((_, LateError::OutOfMemory)) => {
                Err(BackendError::OutOfMemory { requested: 0, in_use: in_use() })
            }
            Some((_, LateError::Driver(source))) => Err(BackendError::Driver { op, source: source.clone() }),
        }
    }

    /// Whether the device should be polled again, to notice a loss.
    pub(crate) fn is_due(&self, threaded: bool) -> bool {
        let interval = if threaded { THREADED_POLL_INTERVAL } else { POLL_INTERVAL };
        let now = self.opened.elapsed().as_micros() as u64;
        let due = now.saturating_sub(self.polled.load(Ordering::Relaxed)) >= interval.as_micros() as u64;
        if due {
            self.polled.store(now, Ordering::Relaxed);
        }
        due
    }

    /// To be asked after an error of the driver: on a lost device anything may fail before the loss is told. It waits for
    /// nothing on one that is well.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), if that was the cause.
    pub(crate) fn probe(&self, device: &GuardedDevice) -> BackendResult<()> {
        self.check().and_then(|()| if is_gone(device) { self.confirm(device) } else { Ok(()) })
    }

    /// The loss of a device that makes no buffers: it is told when the device is polled with nothing left to do.
    fn confirm(&self, device: &GuardedDevice) -> BackendResult<()> {
        let patience = Some(Duration::from_secs(1));
        _ = sync::poll(device, wgpu::PollType::Wait { submission_index: None, timeout: patience });
        if is_gone(device) {
            // Another thread has polled, and will be told in a moment.
            self.lose("the device makes no buffers any more");
        }
        self.check()
    }

    /// What a call returns that got `error`: on a lost device, that it is lost.
    pub(crate) fn explain(&self, device: &GuardedDevice, error: BackendError) -> BackendError {
        self.probe(device).err().unwrap_or(error)
    }

    /// [`check`](Self::check) after the device's answer to work of before. A browser answers on a lost device
    /// too, and tells of the loss apart from it; what is asked for now is answered after that.
    pub(crate) async fn settle(&self, device: &GuardedDevice) -> BackendResult<()> {
        if cfg!(target_family = "wasm") {
            _ = guarded_async(device, || ()).await;
        }
        self.check()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost), for good.
    pub(crate) fn check(&self) -> BackendResult<()> {
        if self.is_lost() {
            return Err(BackendError::DeviceLost { reason: self.reason.lock().clone() });
        }
        Ok(())
    }
}

/// Whether the device is lost, as far as wgpu knows. It tells so by a callback, which another thread may be
/// about to make; but a buffer that is made then can't be used. The buffer can be mapped to be written: wgpu fills any
/// other by a copy on the queue, with a lock that a submission holds for as long as the driver keeps it.
fn is_gone(device: &GuardedDevice) -> bool {
    // In a browser a lost device makes buffers like any other.
    if cfg!(target_family = "wasm") {
        return false;
    }
    let made = guarded(device, || {
        device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("is the device lost?"),
            size: wgpu::MAP_ALIGNMENT,
            usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        })
    });
    made.is_ok_and(|buffer| buffer.get_mapped_range(..).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A future that was begun by one thread and is finished by another, whose own work was lost as well.
    #[test]
    fn who_finishes_the_read_of_another_thread_is_told_of_its_own() {
        let health = Health::detached();
        let begun_here = health.witness();
        thread::scope(|scope| {
            scope.spawn(|| {
                health.witness();
                health
                    .report(wgpu::Error::Internal { source: "test".into(), description: "late".to_owned() });
                let take = |witness| health.take_late("test", witness, 0, || 0);
                assert!(take(begun_here).is_err(), "the other thread's read");
                assert!(take(health.witness()).is_err(), "its own read");
                assert!(take(health.witness()).is_ok(), "told once");
            });
        });
    }
}
