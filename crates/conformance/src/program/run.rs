//! A program on a backend and on the model.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use backend_api::{BackendError, BackendResult, ComputeBackend, DType, ErrorKind};

use super::invoke::{Returned, invoke, numbers};
use super::model::MAX_ALLOC;
use super::{Call, Model, Program, Slot};

mod reads;

use reads::Reads;

/// A device must know of its loss by then.
const NOTICE: Duration = Duration::from_secs(1);

/// A backend, and what can be done to it from outside. What a backend doesn't have is left out.
pub trait Target: Debug + Send + Sync {
    /// The backend, open.
    fn backend(&self) -> &dyn ComputeBackend;

    /// The backend's `init`.
    ///
    /// # Errors
    /// What [`ComputeBackend::init`] returns.
    fn init(&mut self) -> BackendResult<()>;

    /// Submits what has been recorded.
    ///
    /// # Errors
    /// What the backend returns.
    fn flush(&self) -> BackendResult<()> {
        Ok(())
    }

    /// How long calls wait; `None` for as long as usual.
    ///
    /// # Errors
    /// What the backend returns.
    fn set_timeout(&self, timeout: Option<Duration>) -> BackendResult<()> {
        _ = timeout;
        Ok(())
    }

    /// A handle to a buffer of zeros that the caller made.
    ///
    /// # Errors
    /// What the backend returns.
    fn import(&self, bytes: usize) -> BackendResult<u64> {
        _ = bytes;
        Err(self.backend().unsupported("import_buffer"))
    }

    /// Destroys the buffer behind a handle.
    ///
    /// # Errors
    /// What the backend returns.
    fn destroy_buffer(&self, ptr: u64) -> BackendResult<()> {
        _ = ptr;
        Err(self.backend().unsupported("export_buffer"))
    }

    /// Destroys the device; whether there is one.
    fn destroy_device(&self) -> bool {
        false
    }

    /// Bytes that the driver has for the device, by its own account.
    fn device_bytes(&self) -> usize {
        0
    }

    /// What else is to stay bounded, with its name.
    fn gauges(&self) -> Vec<(&'static str, usize)> {
        Vec::new()
    }
}

/// A backend to which nothing can be done from outside.
#[derive(Debug)]
pub struct Plain<B>(pub B);

impl<B: ComputeBackend> Target for Plain<B> {
    fn backend(&self) -> &dyn ComputeBackend {
        &self.0
    }

    fn init(&mut self) -> BackendResult<()> {
        self.0.init()
    }
}

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
    let results: Vec<Result<(), String>> = thread::scope(|scope| {
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
        thread::yield_now();
    }
    target.init().map_err(|error| format!("init after a loss: {error:?}"))?;
    world.lost.store(false, Ordering::SeqCst);
    world.jeopardy.store(false, Ordering::SeqCst);
    Ok(())
}

/// One thread of a program.
struct Thread<'w> {
    world: &'w World,
    model: Model,
    /// The handles of each variable: the backend's and the model's.
    slots: HashMap<Slot, (u64, u64)>,
    findings: Findings,
    /// Whether there was a new device, which knows of no handle from before.
    reopened: bool,
}

impl<'w> Thread<'w> {
    fn new(world: &'w World, shared: &[(Slot, u64, DType)]) -> BackendResult<Self> {
        let model = Model::default();
        let own = shared_inputs(&model)?;
        let slots = shared.iter().zip(own).map(|(&(slot, ptr, _), (_, own, _))| (slot, (ptr, own))).collect();
        Ok(Self { world, model, slots, findings: Findings::default(), reopened: false })
    }

    fn run_alone(&mut self, target: &mut dyn Target, calls: &[Call]) -> Result<(), String> {
        let mut rest = calls;
        while let Some(opened) = self.run(&*target, rest)? {
            rest = opened;
            if self.world.lost.load(Ordering::SeqCst) {
                reopen(target, self.world)?;
                self.model.reset();
                self.reopened = true;
            } else {
                target.init().map_err(|error| format!("init of an open backend: {error:?}"))?;
            }
        }
        Ok(())
    }

    /// Makes calls up to the next `init`; what follows it.
    fn run<'c>(&mut self, target: &dyn Target, calls: &'c [Call]) -> Result<Option<&'c [Call]>, String> {
        let mut reads = Reads::new(target.backend());
        for (i, call) in calls.iter().enumerate() {
            let label = format!("{call:?}");
            (self.world.begin)(&label);
            self.findings.calls += 1;
            if matches!(call, Call::Init) {
                return Ok(Some(&calls[i + 1..]));
            }
            self.step(target, &mut reads, call).map_err(|why| format!("call {i}, {label}: {why}"))?;
        }
        reads.finish_all(self)?;
        Ok(None)
    }

    fn step<'b>(&mut self, target: &'b dyn Target, reads: &mut Reads<'b>, call: &Call) -> Result<(), String> {
        if call.target().is_some_and(|to| self.len(to).is_some() || self.model.is_graph(self.own(to))) {
            return Ok(());
        }
        let lost_before = self.world.lost.load(Ordering::SeqCst);
        if self.slots.values().any(|&(_, own)| self.model.is_dead(own)) {
            // Which of its calls names the dead buffer isn't worth knowing: they share batches.
            self.world.jeopardy.store(true, Ordering::SeqCst);
        }
        match *call {
            Call::BeginRead { src, bytes } => return reads.begin(self, src, bytes),
            Call::PollRead { nth } => return reads.poll(self, nth),
            Call::FinishRead { nth } => return reads.finish(self, nth),
            Call::DropRead { nth } => return reads.cancel(nth),
            _ if call.is_fault() => return self.fault(target, call),
            _ => {}
        }
        let result = invoke(call, target.backend(), &|slot| self.real(slot));
        if let Err(error) = &result
            && self.is_excused(call, error)
        {
            return Ok(());
        }
        let expected = invoke(call, &self.model, &|slot| self.own(slot));
        match (result, expected) {
            (Ok(Returned::Handle(real)), Ok(Returned::Handle(own))) => {
                let to = call.target().ok_or("a handle without a variable")?;
                self.slots.insert(to, (real, own));
            }
            (Ok(Returned::Bytes(read)), Ok(_)) => {
                if lost_before && !read.is_empty() {
                    return Err("it read from a device that was lost before".to_owned());
                }
                let Call::Read { src, bytes } = *call else { return Err("bytes without a read".to_owned()) };
                let known = self.model.bytes(self.own(src), bytes);
                self.compare(&read, &known)?;
            }
            (Ok(Returned::Nothing), Ok(_)) if lost_before && call.waits() => {
                return Err("it waited for a device that was lost before".to_owned());
            }
            (Ok(Returned::Nothing), Ok(_)) => {}
            // A backend that compiles nothing looks at nothing.
            (Ok(_), Err(_)) if matches!(call, Call::WarmUp { .. }) => {}
            (Err(got), Err(expected)) if got.kind() == expected.kind() => {
                self.findings.refused += 1;
                // Nor has it waited for anything, or told of what went wrong.
                return Ok(());
            }
            (got, expected) => {
                let (got, expected) = (got.map(drop), expected.map(drop));
                return Err(format!("it gave {got:?}, the contract says {expected:?}"));
            }
        }
        if call.waits() {
            self.model.settle();
            if lost_before || self.slots.values().any(|&(_, own)| self.model.is_dead(own)) {
                return Ok(());
            }
            if self.world.jeopardy.swap(false, Ordering::SeqCst) {
                reads.endanger();
            }
        }
        Ok(())
    }

    fn fault(&mut self, target: &dyn Target, call: &Call) -> Result<(), String> {
        let result = match *call {
            Call::Flush => target.flush(),
            Call::Timeout { millis } => target.set_timeout(millis.map(Duration::from_millis)),
            Call::DestroyDevice => {
                // Before it is destroyed: another thread's call may come between.
                let lost = self.world.lost.swap(true, Ordering::SeqCst);
                if !target.destroy_device() {
                    self.world.lost.store(lost, Ordering::SeqCst);
                }
                Ok(())
            }
            // A buffer made on a lost device would be the caller's mistake.
            Call::Import { .. } if self.world.lost.load(Ordering::SeqCst) => Ok(()),
            Call::Import { to, bytes } => match target.import(bytes) {
                Ok(real) => {
                    let own = self.model.import(bytes).map_err(|error| format!("{error:?}"))?;
                    self.slots.insert(to, (real, own));
                    Ok(())
                }
                Err(BackendError::Unsupported { .. }) => Ok(()),
                Err(error) => Err(error),
            },
            Call::DestroyBuffer { slot }
                if self.len(slot).is_some_and(|len| len > 0) && !slot.is_shared() =>
            {
                match target.destroy_buffer(self.real(slot)) {
                    Ok(()) => {
                        self.world.jeopardy.store(true, Ordering::SeqCst);
                        self.model.kill(self.own(slot));
                        Ok(())
                    }
                    Err(BackendError::Unsupported { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            _ => Ok(()),
        };
        match result {
            Err(error) if !self.is_excused(call, &error) => Err(format!("it gave {error:?}")),
            _ => Ok(()),
        }
    }

    /// Whether the error is one that what was done to the backend explains. It has changed nothing then,
    /// except that what a [`Driver`](BackendError::Driver) error tells of is lost.
    fn is_excused(&mut self, call: &Call, error: &BackendError) -> bool {
        let world = self.world;
        let excused = match error.kind() {
            ErrorKind::DeviceLost => world.lost.load(Ordering::SeqCst),
            ErrorKind::Driver => world.jeopardy.load(Ordering::SeqCst),
            ErrorKind::Timeout => world.may_time_out,
            ErrorKind::OutOfMemory | ErrorKind::Limit if matches!(*call, Call::Alloc { bytes, .. } if bytes > MAX_ALLOC) => {
                true
            }
            ErrorKind::OutOfMemory => world.may_run_out,
            ErrorKind::Unsupported => !world.f16 && format!("{call:?}").contains("F16"),
            _ => false,
        };
        if excused {
            self.findings.refused += 1;
            if error.kind() == ErrorKind::Driver {
                self.model.forget_unsettled();
            }
        }
        excused
    }

    fn real(&self, slot: Slot) -> u64 {
        self.slots.get(&slot).map_or(0, |&(real, _)| real)
    }

    fn own(&self, slot: Slot) -> u64 {
        self.slots.get(&slot).map_or(0, |&(_, own)| own)
    }

    /// The bytes behind a live handle.
    fn len(&self, slot: Slot) -> Option<usize> {
        self.model.len(self.own(slot))
    }

    fn compare(&mut self, read: &[u8], known: &[(u8, u8)]) -> Result<(), String> {
        self.findings.read += read.len();
        self.findings.compared += known.iter().filter(|&&(_, known)| known & 0x7f == 0x7f).count();
        let wrong = read.iter().zip(known).position(|(&got, &(byte, known))| (got ^ byte) & known != 0);
        match wrong {
            None => Ok(()),
            Some(at) => {
                let first = at / 4 * 4;
                let end = (first + 16).min(read.len());
                let expected: Vec<String> = known[first..end]
                    .iter()
                    .map(|(byte, known)| if *known == 0 { "??".to_owned() } else { format!("{byte:02x}") })
                    .collect();
                Err(format!(
                    "byte {at} is wrong: from {first} on {:02x?}, expected {expected:?}",
                    &read[first..end]
                ))
            }
        }
    }

    /// Compares everything that this thread has.
    fn read_all(&mut self, backend: &dyn ComputeBackend) -> Result<(), String> {
        let slots: Vec<(Slot, (u64, u64))> = self.slots.iter().map(|(&slot, &ptrs)| (slot, ptrs)).collect();
        for (slot, (real, own)) in slots {
            let Some(len) = self.model.len(own) else { continue };
            let mut read = vec![0xa5; len];
            backend
                .copy_dtoh(&mut read, real)
                .map_err(|error| format!("reading {slot:?} at the end: {error:?}"))?;
            self.compare(&read, &self.model.bytes(own, len))
                .map_err(|why| format!("{slot:?} at the end: {why}"))?;
        }
        Ok(())
    }

    /// Frees the handles of its own that are chosen.
    fn free(
        &mut self,
        backend: &dyn ComputeBackend,
        chosen: impl Fn(&Model, u64) -> bool,
    ) -> Result<(), String> {
        for (slot, &(real, own)) in &self.slots {
            if slot.is_graph() && self.model.is_graph(own) && chosen(&self.model, own) {
                self.model.free_graph(own).map_err(|error| format!("{error:?}"))?;
                backend
                    .free_graph(real)
                    .map_err(|error| format!("freeing {slot:?} at the end: {error:?}"))?;
            }
            if !slot.is_shared() && self.model.len(own).is_some() && chosen(&self.model, own) {
                self.model.free(own).map_err(|error| format!("{error:?}"))?;
                backend.free(real).map_err(|error| format!("freeing {slot:?} at the end: {error:?}"))?;
            }
        }
        Ok(())
    }
}
