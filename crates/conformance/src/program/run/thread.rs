//! One thread of a program.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use backend_api::{BackendError, BackendResult, ComputeBackend, DType, ErrorKind};

use super::super::invoke::{Returned, invoke};
use super::super::model::MAX_ALLOC;
use super::super::{Call, Model, Slot};
use super::reads::Reads;
use super::{Findings, Target, World, reopen, shared_inputs};

/// One thread of a program.
pub(super) struct Thread<'w> {
    pub(super) world: &'w World,
    pub(super) model: Model,
    /// The handles of each variable: the backend's and the model's.
    pub(super) slots: HashMap<Slot, (u64, u64)>,
    pub(super) findings: Findings,
    /// Whether there was a new device, which knows of no handle from before.
    pub(super) reopened: bool,
}

impl<'w> Thread<'w> {
    pub(super) fn new(world: &'w World, shared: &[(Slot, u64, DType)]) -> BackendResult<Self> {
        let model = Model::default();
        let own = shared_inputs(&model)?;
        let slots = shared.iter().zip(own).map(|(&(slot, ptr, _), (_, own, _))| (slot, (ptr, own))).collect();
        Ok(Self { world, model, slots, findings: Findings::default(), reopened: false })
    }

    pub(super) fn run_alone(&mut self, target: &mut dyn Target, calls: &[Call]) -> Result<(), String> {
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
    pub(super) fn run<'c>(
        &mut self,
        target: &dyn Target,
        calls: &'c [Call],
    ) -> Result<Option<&'c [Call]>, String> {
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
    pub(super) fn is_excused(&mut self, call: &Call, error: &BackendError) -> bool {
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

    pub(super) fn real(&self, slot: Slot) -> u64 {
        self.slots.get(&slot).map_or(0, |&(real, _)| real)
    }

    pub(super) fn own(&self, slot: Slot) -> u64 {
        self.slots.get(&slot).map_or(0, |&(_, own)| own)
    }

    /// The bytes behind a live handle.
    fn len(&self, slot: Slot) -> Option<usize> {
        self.model.len(self.own(slot))
    }

    pub(super) fn compare(&mut self, read: &[u8], known: &[(u8, u8)]) -> Result<(), String> {
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
    pub(super) fn read_all(&mut self, backend: &dyn ComputeBackend) -> Result<(), String> {
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
    pub(super) fn free(
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
