//! The faults of handles, made from any operation's good call.

use backend_api::{BackendError, BackendResult, ComputeBackend};

use super::expect::{Expect, invalid, overlap, too_small};
use super::fixture::{Fixture, Handles, check_bytes};
use super::{Operation, Role};

/// What is wrong with the handle of one operand.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Zero,
    Unknown,
    Freed,
    Foreign,
    /// One element short.
    Short,
    /// A view of nothing.
    Empty,
    Misaligned,
    /// The operand lies in the same allocation as the output `output`, `by` bytes after its start, or before
    /// it.
    Overlapping {
        output: usize,
        by: isize,
    },
}

/// A fault of one operand's handle.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) name: String,
    pub(super) expect: Expect,
    operand: usize,
    kind: Kind,
}

/// Every fault that the operands of `operation` can have.
pub(super) fn faults(operation: &Operation) -> Vec<Fault> {
    let op = operation.name;
    let mut faults = Vec::new();
    if !operation.spoilable {
        return faults;
    }
    for (operand, slot) in operation.slots.iter().enumerate() {
        let (arg, bytes, align) = (slot.arg, slot.content.len(), slot.align);
        let mut add = |what: &str, kind, expect| {
            faults.push(Fault { name: format!("{arg} {what}"), expect, operand, kind });
        };
        add("is 0", Kind::Zero, invalid(op, arg, 0));
        // The pointers of these are known when they are made; `apply` fills them in.
        add("is unknown", Kind::Unknown, invalid(op, arg, 0));
        add("was freed", Kind::Freed, invalid(op, arg, 0));
        add("is another backend's", Kind::Foreign, invalid(op, arg, 0));
        add("is one element short", Kind::Short, too_small(op, arg, bytes - align, bytes));
        add("is empty", Kind::Empty, too_small(op, arg, 0, bytes));
        if align > 1 {
            let offset = align / 2;
            let misaligned = BackendError::Misaligned { op, arg, offset, align };
            add("is misaligned", Kind::Misaligned, Expect::Exactly(misaligned));
        }
        if slot.role == Role::Output {
            continue;
        }
        for (output, written) in operation.slots.iter().enumerate() {
            if written.role != Role::Output {
                continue;
            }
            let step = align.max(written.align).max(4) as isize;
            let mut add_overlap = |what: &str, by| {
                add(
                    &format!("{what} {}", written.arg),
                    Kind::Overlapping { output, by },
                    overlap(op, written.arg, arg),
                );
            };
            if written.content.len() as isize > step {
                add_overlap("begins inside", step);
            }
            if bytes as isize > step {
                add_overlap("ends inside", -step);
            }
            if slot.role == Role::Input || bytes != written.content.len() {
                add_overlap("begins with", 0);
            }
        }
    }
    faults
}

/// The handles of a spoiled call, and the memory made for it.
#[derive(Debug)]
pub(super) struct Spoiled<'a> {
    backend: &'a dyn ComputeBackend,
    handles: Handles,
    owned: Vec<u64>,
    /// Memory that the call must not change, besides the fixture's.
    watched: Option<(u64, Vec<u8>)>,
}

impl Spoiled<'_> {
    pub(super) fn handles(&self) -> &Handles {
        &self.handles
    }

    pub(super) fn check_unchanged(&self) -> Result<(), String> {
        match &self.watched {
            Some((ptr, bytes)) => check_bytes(self.backend, "the shared allocation", *ptr, bytes),
            None => Ok(()),
        }
    }
}

impl Drop for Spoiled<'_> {
    fn drop(&mut self) {
        for &ptr in &self.owned {
            _ = self.backend.free(ptr);
        }
    }
}

/// Makes the handles of a fault. The fault's expected error gets the handle that it is about.
pub(super) fn apply<'a>(fixture: &Fixture<'a>, fault: &mut Fault) -> Result<Spoiled<'a>, String> {
    let mut spoiled = Spoiled {
        backend: fixture.backend(),
        handles: fixture.handles().clone(),
        owned: Vec::new(),
        watched: None,
    };
    make(fixture, fault, &mut spoiled).map_err(|error| format!("the handle could not be made: {error:?}"))?;
    if let Expect::Exactly(BackendError::InvalidHandle { ptr, .. }) = &mut fault.expect {
        *ptr = spoiled.handles[fault.operand];
    }
    Ok(spoiled)
}

fn make(fixture: &Fixture<'_>, fault: &Fault, spoiled: &mut Spoiled<'_>) -> BackendResult<()> {
    let backend = fixture.backend();
    let slot = &fixture.operation().slots[fault.operand];
    let bytes = slot.content.len();
    let good = fixture.handles()[fault.operand];
    let own = |spoiled: &mut Spoiled<'_>, ptr: u64| {
        spoiled.owned.push(ptr);
        ptr
    };
    let bad = match fault.kind {
        Kind::Zero => 0,
        Kind::Unknown => spoiled.handles.unknown,
        Kind::Freed => spoiled.handles.freed,
        Kind::Foreign => spoiled.handles.foreign,
        Kind::Short => own(spoiled, backend.view(good, 0, bytes - slot.align)?),
        Kind::Empty => own(spoiled, backend.view(good, 0, 0)?),
        Kind::Misaligned => {
            let content = vec![0xff; bytes + slot.align];
            let wide = own(spoiled, backend.alloc(content.len())?);
            backend.copy_htod(wide, &content)?;
            spoiled.watched = Some((wide, content));
            own(spoiled, backend.view(wide, slot.align / 2, bytes)?)
        }
        Kind::Overlapping { output, by } => {
            let written = fixture.operation().slots[output].content.len();
            let (at, output_at) = (by.max(0) as usize, (-by).max(0) as usize);
            let content = vec![0xff; (at + bytes).max(output_at + written)];
            let arena = own(spoiled, backend.alloc(content.len())?);
            backend.copy_htod(arena, &content)?;
            spoiled.watched = Some((arena, content));
            let shared = own(spoiled, backend.view(arena, output_at, written)?);
            spoiled.handles.operands[output] = shared;
            own(spoiled, backend.view(arena, at, bytes)?)
        }
    };
    spoiled.handles.operands[fault.operand] = bad;
    Ok(())
}
