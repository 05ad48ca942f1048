//! A program on a backend and on the model.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use backend_api::{BackendError, BackendResult, ComputeBackend, DType};

use super::invoke::numbers;
use super::{Call, Model, Program, Slot};

mod reads;
mod target;
mod thread;

pub use target::{Plain, Target};
use thread::Thread;

/// A device must know of its loss by then.
const NOTICE: Duration = Duration::from_secs(1);

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// Calls made.
    pub calls: usize,
    /// Calls that failed as they had to or might.
    pub refused: usize,
    /// Bytes read.
    pub read: usize,
    /// Bytes read that the model knew, whole or but for a sign.
    pub compared: usize,
}

impl Findings {
    /// Adds what another run looked at.
    pub fn absorb(&mut self, other: Self) {
        self.calls += other.calls;
        self.refused += other.refused;
        self.read += other.read;
        self.compared += other.compared;
    }
}

/// What the threads of a program share.
struct World {
    begin: Box<dyn Fn(&str) + Send + Sync>,
    /// Whether the device was destroyed.
    lost: AtomicBool,
    /// Whether a batch may have been lost with a destroyed buffer.
    jeopardy: AtomicBool,
    f16: bool,
    may_run_out: bool,
    may_time_out: bool,
}

/// Inputs that no thread writes: numbers of f32, of u32, and of f16.
pub(super) fn shared_inputs(backend: &dyn ComputeBackend) -> BackendResult<Vec<(Slot, u64, DType)>> {
    const BYTES: usize = 1200;
    let dtypes: [DType; Slot::SHARED_COUNT] = [DType::F32, DType::U32, DType::F16];
    let input = |(i, dtype)| {
        let ptr = backend.alloc(BYTES)?;
        backend.copy_htod(ptr, &numbers(dtype, BYTES, i as u64))?;
        Ok((Slot(Slot::SHARED + i), ptr, dtype))
    };
    dtypes.into_iter().enumerate().map(input).collect()
}

/// Runs a program; `begin` is told of each call before it is made.
///
/// # Errors
/// The first thing of each thread that was not as the contract says.
pub fn run(
    target: &mut dyn Target,
    program: &Program,
    begin: impl Fn(&str) + Send + Sync + 'static,
) -> Result<Findings, String> {
    let told = |what: &str| {
        let what = what.to_owned();
        move |error: BackendError| format!("{what}: {error:?}")
    };
    let world = World {
        begin: Box::new(begin),
        lost: AtomicBool::new(false),
        jeopardy: AtomicBool::new(false),
        f16: target.backend().capabilities().map_err(told("capabilities"))?.f16,
        may_run_out: program.has(|call| matches!(call, Call::Budget { .. })),
        may_time_out: program.has(|call| matches!(call, Call::Timeout { .. })),
    };
    let before = target.backend().memory_stats();
    let shared = shared_inputs(target.backend()).map_err(told("the shared inputs"))?;
    target.backend().synchronize().map_err(told("synchronize"))?;
    let mut threads = Vec::new();
    for _ in &program.threads {
        threads.push(Thread::new(&world, &shared).map_err(told("the model"))?);
    }
    if let ([thread], [calls]) = (&mut threads[..], &program.threads[..]) {
        thread.run_alone(target, calls)?;
    } else {
        together(&*target, &mut threads, program)?;
    }
    let mut findings = finish(target, &world, &mut threads, &shared)?;
    for thread in threads {
        findings.absorb(thread.findings);
    }
    let after = target.backend().memory_stats();
    if (after.handles, after.in_use) != (before.handles, before.in_use) {
        return Err(format!("all is freed, but memory is {after:?}, and was {before:?}"));
    }
    Ok(findings)
}

fn together(target: &dyn Target, threads: &mut [Thread<'_>], program: &Program) -> Result<(), String> {
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let running: Vec<_> = threads
            .iter_mut()
            .zip(&program.threads)
            .map(|(thread, calls)| scope.spawn(move || thread.run(target, calls).map(drop)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a panic".to_owned())))
            .collect()
    });
    let numbered = results.into_iter().enumerate();
    let failed: Vec<String> =
        numbered.filter_map(|(i, result)| result.err().map(|why| format!("thread {i}: {why}"))).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// Brings the backend back to what it was, reads all that is left, and frees it.
fn finish(
    target: &mut dyn Target,
    world: &World,
    threads: &mut [Thread<'_>],
    shared: &[(Slot, u64, DType)],
) -> Result<Findings, String> {
    (world.begin)("the end");
    if world.lost.load(Ordering::SeqCst) {
        reopen(target, world)?;
        return Ok(Findings::default());
    }
    let told = |error: BackendError| format!("at the end: {error:?}");
    target.set_timeout(None).map_err(told)?;
    target.backend().set_memory_budget(None).map_err(told)?;
    let backend = target.backend();
    for thread in &mut *threads {
        thread.free(backend, Model::is_dead)?;
    }
    match backend.synchronize() {
        Err(BackendError::Driver { .. }) if world.jeopardy.load(Ordering::SeqCst) => {
            threads.iter().for_each(|thread| thread.model.forget_unsettled());
            // What failed late is told once.
            backend.synchronize().map_err(told)?;
        }
        result => result.map_err(told)?,
    }
    world.jeopardy.store(false, Ordering::SeqCst);
    for thread in &mut *threads {
        thread.read_all(backend)?;
        thread.free(backend, |_, _| true)?;
    }
    if threads.iter().all(|thread| !thread.reopened) {
        for &(_, ptr, _) in shared {
            backend.free(ptr).map_err(told)?;
        }
    }
    backend.synchronize().map_err(told)?;
    Ok(Findings::default())
}

/// `init` after a loss, once it is noticed.
fn reopen(target: &mut dyn Target, world: &World) -> Result<(), String> {
    let start = Instant::now();
    while target.backend().is_initialized() {
        if start.elapsed() > NOTICE {
            return Err(format!("is_initialized() is true {NOTICE:?} after the device was destroyed"));
        }
        std::thread::yield_now();
    }
    target.init().map_err(|error| format!("init after a loss: {error:?}"))?;
    world.lost.store(false, Ordering::SeqCst);
    world.jeopardy.store(false, Ordering::SeqCst);
    Ok(())
}
