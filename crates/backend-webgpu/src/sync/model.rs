//! What runs in tests of interleavings: one thread at a time, chosen by shuttle at each step of a lock, an
//! atomic number or a channel.
//!
//! wgpu has locks of its own that shuttle doesn't know. A thread that is stopped while it has one would stop
//! the test, so no step of ours may happen inside of wgpu: its callbacks are kept, and made by the thread
//! that polls when wgpu has returned. A test also decides there whether the device has finished, as wgpu's
//! device for tests always has.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync as of_shuttle;

pub(crate) use shuttle::sync::{atomic, mpsc};
pub(crate) use shuttle::{thread, thread_local};

/// A wait of at most this is the pause of a thread that polls, which may end at any time.
const PAUSE: Duration = Duration::from_millis(1);

/// What a look at the clock takes where time passes.
const LOOK: Duration = Duration::from_micros(100);

std::thread_local! {
    /// Shuttle runs all threads of a test on one of the system's.
    static WORLD: RefCell<World> = RefCell::default();
}

/// What a test has beside its threads.
#[derive(Default)]
struct World {
    time_passes: bool,
    now: Duration,
    /// Callbacks that wgpu has made and nobody has yet been told of.
    callbacks: VecDeque<Box<dyn FnOnce()>>,
}

/// Begins a test. Unless time passes, a wait ends by being told and by nothing else: one that isn't told is a
/// deadlock, which shuttle finds, where in use it would only be a delay.
#[cfg(test)]
pub(crate) fn begin(time_passes: bool) {
    // What an earlier test left is dropped after the borrow.
    let before =
        WORLD.with_borrow_mut(|world| std::mem::replace(world, World { time_passes, ..World::default() }));
    drop(before);
}

fn time_passes() -> bool {
    WORLD.with_borrow(|world| world.time_passes)
}

fn pass(time: Duration) {
    WORLD.with_borrow_mut(|world| {
        if world.time_passes {
            world.now += time;
        }
    });
}

/// `wgpu::Device::poll`, after which the device may have finished all, some or none of its work, and the
/// callbacks of that are made. A wait for all of it doesn't give up.
pub(crate) fn poll(device: &wgpu::Device, kind: wgpu::PollType) -> Result<wgpu::PollStatus, wgpu::PollError> {
    let (is_look, gives_up) = match &kind {
        wgpu::PollType::Poll => (true, false),
        wgpu::PollType::Wait { submission_index, .. } => {
            (false, submission_index.is_some() && thread_rng().gen_range(0..4) == 0)
        }
    };
    let status = device.poll(kind)?;
    let ready = WORLD.with_borrow(|world| world.callbacks.len());
    let made = match (is_look, gives_up) {
        (true, _) if ready > 0 => thread_rng().gen_range(0..=ready),
        (_, true) => 0,
        _ => ready,
    };
    for _ in 0..made {
        // Another thread that polls may have taken it meanwhile.
        let callback = WORLD.with_borrow_mut(|world| world.callbacks.pop_front());
        if let Some(callback) = callback {
            callback();
        }
    }
    if made == 0 {
        // Whoever polls again and again must let others run.
        pass(LOOK);
        thread::yield_now();
    }
    if gives_up { Err(wgpu::PollError::Timeout) } else { Ok(status) }
}

/// Keeps what a callback of wgpu is for, until somebody polls.
pub(crate) fn deliver(work: impl FnOnce() + 'static) {
    WORLD.with_borrow_mut(|world| world.callbacks.push_back(Box::new(work)));
}

/// The time of the test.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        pass(LOOK);
        Self(WORLD.with_borrow(|world| world.now))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Self::now().0 - self.0
    }
}

/// shuttle's mutex, without poison.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(of_shuttle::Mutex<T>);

/// `None` only within a wait.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T>(Option<of_shuttle::MutexGuard<'a, T>>, &'a Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(of_shuttle::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)), self)
    }
}

const HELD: &str = "a guard is a lock except within a wait";

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect(HELD)
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect(HELD)
    }
}

/// shuttle's condition variable, with waits that end where time passes.
#[derive(Debug, Default)]
pub(crate) struct Condvar(of_shuttle::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Ends by being told, however long that takes.
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(held) = guard.0.take() {
            guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, patience: Duration) {
        if patience <= PAUSE || time_passes() {
            guard.0 = None;
            pass(patience);
            thread::yield_now();
            guard.0 = guard.1.lock().0;
        } else {
            self.wait(guard);
        }
    }
}

/// shuttle's lock for readers and a writer, without poison.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T>(of_shuttle::RwLock<T>);

pub(crate) type RwLockReadGuard<'a, T> = of_shuttle::RwLockReadGuard<'a, T>;

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(of_shuttle::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> of_shuttle::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Doesn't give up: nobody reads for long in a test.
    pub(crate) fn try_write_for(&self, _: Duration) -> Option<of_shuttle::RwLockWriteGuard<'_, T>> {
        Some(self.write())
    }
}

/// A mutex that its thread may take again.
#[derive(Debug, Default)]
pub(crate) struct ReentrantMutex<T> {
    owner: Mutex<Option<(thread::ThreadId, usize)>>,
    freed: Condvar,
    value: T,
}

#[derive(Debug)]
pub(crate) struct ReentrantMutexGuard<'a, T>(&'a ReentrantMutex<T>);

impl<T> ReentrantMutex<T> {
    pub(crate) fn lock(&self) -> ReentrantMutexGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock_for(Duration::MAX) {
                return guard;
            }
        }
    }

    pub(crate) fn try_lock(&self) -> Option<ReentrantMutexGuard<'_, T>> {
        self.try_lock_for(Duration::ZERO)
    }

    pub(crate) fn try_lock_for(&self, patience: Duration) -> Option<ReentrantMutexGuard<'_, T>> {
        let (me, start) = (thread::current().id(), Instant::now());
        let mut owner = self.owner.lock();
        loop {
            match &mut *owner {
                None => *owner = Some((me, 1)),
                Some((holder, depth)) if *holder == me => *depth += 1,
                Some(_) if start.elapsed() >= patience => return None,
                Some(_) => {
                    self.freed.wait_for(&mut owner, if time_passes() { LOOK } else { patience });
                    continue;
                }
            }
            return Some(ReentrantMutexGuard(self));
        }
    }
}

impl<T> Drop for ReentrantMutexGuard<'_, T> {
    fn drop(&mut self) {
        let mut owner = self.0.owner.lock();
        *owner = owner.take().filter(|&(_, depth)| depth > 1).map(|(holder, depth)| (holder, depth - 1));
        drop(owner);
        self.0.freed.notify_all();
    }
}

impl<T> Deref for ReentrantMutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}
