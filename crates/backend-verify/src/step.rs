//! One call on both backends, and what comes of it.

use std::collections::HashMap;

use backend_api::support::{Access, Operand};
use backend_api::{
    BackendError, BackendResult, Command, ComputeBackend, Difference, Disagreement, ErrorKind,
};
use conformance::reference::{Bytes, compare};
use parking_lot::MutexGuard;

use crate::VerifyBackend;
use crate::file::{self, Memory};
use crate::mirror::Mirror;

/// Whether an error is about the device rather than about the arguments, so that another may not have it.
pub(crate) const fn is_of_the_device(kind: ErrorKind) -> bool {
    !matches!(
        kind,
        ErrorKind::InvalidHandle
            | ErrorKind::BufferTooSmall
            | ErrorKind::Misaligned
            | ErrorKind::Shape
            | ErrorKind::Overlap
            | ErrorKind::Overflow
            | ErrorKind::Dtype
            | ErrorKind::Capturing
    )
}

/// What a call came to, in a few words.
fn outcome<T>(result: &BackendResult<T>) -> String {
    match result {
        Ok(_) => "succeeds".to_owned(),
        Err(error) => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

impl VerifyBackend {
    /// The error of two backends that disagree.
    pub(crate) fn disagreement(&self, op: &'static str, call: String, about: Difference) -> BackendError {
        let found = Disagreement::new(call, self.devices.clone(), about);
        BackendError::Disagreement { op, found: Box::new(found) }
    }

    /// Whether the outcomes of a call on both go together: two successes, or two errors of one kind. An error that
    /// only one of them has is a disagreement, except for a loss of the second device, which is one of both.
    pub(crate) fn agree<T, U>(
        &self,
        op: &'static str,
        call: impl FnOnce() -> String,
        first: BackendResult<T>,
        second: BackendResult<U>,
    ) -> BackendResult<(T, U)> {
        match (first, second) {
            (Ok(first), Ok(second)) => Ok((first, second)),
            (Err(first), Err(second)) if first.kind() == second.kind() => Err(first),
            (_, Err(BackendError::DeviceLost { reason })) => {
                Err(BackendError::DeviceLost { reason: format!("{}: {reason}", self.devices[1]) })
            }
            (first, second) => {
                let about = Difference::Outcomes([outcome(&first), outcome(&second)]);
                Err(self.disagreement(op, call(), about))
            }
        }
    }

    /// Runs an operation on both and compares its outputs; handles are the first backend's.
    pub(crate) fn step(
        &self,
        mirror: &mut Mirror,
        op: &'static str,
        command: Command<'_>,
    ) -> BackendResult<()> {
        self.fall_in(mirror)?;
        let operands = command.operands(op).unwrap_or_default();
        let extents = mirror.extents(operands.iter());
        let (before, stray) = self.inputs(mirror, &operands, &extents)?;

        let first = self.first.execute(op, command);
        if let Err(error) = &first
            && is_of_the_device(error.kind())
        {
            return first;
        }
        let second = mirror.with_twins(command, |command| self.second.execute(op, command));
        let written = mirror.extents(operands.iter().filter(|operand| operand.access == Access::Write));
        let has_run = [first.is_ok(), second.is_ok()];
        if let Err(error) = self.agree(op, || format!("{command:?}"), first, second) {
            // Whichever of the two has run it, the other follows the first.
            mirror.is_out_of_step = has_run[0] != has_run[1];
            return Err(error);
        }
        let after = match self.outputs(mirror, &written) {
            Ok(after) => after,
            Err(error) => {
                mirror.is_out_of_step = true;
                return Err(error);
            }
        };
        let difference = compare(op, &command, &before, after.each_ref())?;
        for &ptr in written.keys() {
            if after[0].get(ptr) != after[1].get(ptr) {
                self.second.copy_htod(mirror.twin(ptr), after[0].get(ptr))?;
            }
        }
        if let Some(about) = stray {
            let call = format!("one before, which wrote beside its outputs; seen by {command:?}");
            return Err(self.disagreement(op, call, about));
        }
        let Some(about) = difference else { return Ok(()) };
        let mut found = Disagreement::new(format!("{command:?}"), self.devices.clone(), about);
        file::write(op, &operands, &Memory { before: &before, after: after.each_ref() }, &mut found);
        Err(BackendError::Disagreement { op, found: Box::new(found) })
    }

    /// What the first has before a call, which the second takes over, and the first operand about which they differ:
    /// calls are compared, so what differs now was written by one that had no business to.
    fn inputs(
        &self,
        mirror: &Mirror,
        operands: &[Operand],
        extents: &HashMap<u64, usize>,
    ) -> BackendResult<(Bytes, Option<Difference>)> {
        let first = Mirror::read(&*self.first, extents, |ptr| ptr)?;
        let second = Mirror::read(&*self.second, extents, |ptr| mirror.twin(ptr))?;
        let mut stray = None;
        for operand in operands.iter().filter(|operand| extents.contains_key(&operand.ptr)) {
            let pair = [&first, &second].map(|bytes| bytes.get(operand.ptr));
            if let Some(about) = difference(operand.arg, pair) {
                self.second.copy_htod(mirror.twin(operand.ptr), pair[0])?;
                stray.get_or_insert(about);
            }
        }
        Ok((first, stray))
    }

    /// What both have in their outputs.
    fn outputs(&self, mirror: &Mirror, written: &HashMap<u64, usize>) -> BackendResult<[Bytes; 2]> {
        let first = Mirror::read(&*self.first, written, |ptr| ptr)?;
        let second = Mirror::read(&*self.second, written, |ptr| mirror.twin(ptr))?;
        Ok([first, second])
    }

    /// The mirror, for a call that both backends make on the same memory.
    pub(crate) fn in_step(&self) -> BackendResult<MutexGuard<'_, Mirror>> {
        let mut mirror = self.mirror.lock();
        self.fall_in(&mut mirror)?;
        Ok(mirror)
    }

    /// Gives the second backend the first one's memory, if a call has failed halfway.
    fn fall_in(&self, mirror: &mut Mirror) -> BackendResult<()> {
        if !mirror.is_out_of_step {
            return Ok(());
        }
        for (&ptr, twin) in &mirror.twins {
            let mut bytes = vec![0; twin.len];
            self.first.copy_dtoh(&mut bytes, ptr)?;
            self.second.copy_htod(twin.ptr, &bytes)?;
        }
        mirror.is_out_of_step = false;
        Ok(())
    }

    /// Compares two reads of the same memory.
    pub(crate) fn compare_reads(
        &self,
        op: &'static str,
        call: impl FnOnce() -> String,
        pair: [&[u8]; 2],
    ) -> BackendResult<()> {
        match difference("src", pair) {
            Some(about) => Err(self.disagreement(op, call(), about)),
            None => Ok(()),
        }
    }
}

/// The first byte about which two reads of the same memory differ.
fn difference(arg: &'static str, [first, second]: [&[u8]; 2]) -> Option<Difference> {
    let differs = |(a, b): &(&u8, &u8)| a != b;
    let index = first.iter().zip(second).position(|pair| differs(&pair))?;
    let byte = |bytes: &[u8]| bytes.get(index).map_or_else(String::new, |byte| format!("byte 0x{byte:02x}"));
    Some(Difference::Elements {
        arg,
        wrong: first.iter().zip(second).filter(differs).count(),
        total: first.len(),
        index,
        values: [byte(first), byte(second)],
        accepted: "the same bits".to_owned(),
    })
}
