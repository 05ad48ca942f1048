//! The memory that bad calls must leave alone.

use std::ops::Index;

use backend_api::{BackendResult, ComputeBackend};

use super::operation::decode;
use super::{Operation, Role};

/// A handle that no backend gives out: the slot of this index is never reached.
const UNKNOWN: u64 = 0x7fff_fff1_00ff_fff0;

/// The handles that a call is made with: one for each operand, by index, and some that are not live.
#[derive(Clone, Debug)]
pub struct Handles {
    pub(super) operands: Vec<u64>,
    /// A handle that was freed.
    pub freed: u64,
    /// A live handle of another backend.
    pub foreign: u64,
    /// A handle that was never given out.
    pub unknown: u64,
}

impl Handles {
    /// Operands, with no live handle beside them.
    pub(super) const fn of(operands: Vec<u64>) -> Self {
        Self { operands, freed: UNKNOWN, foreign: UNKNOWN, unknown: UNKNOWN }
    }
}

impl Index<usize> for Handles {
    type Output = u64;

    fn index(&self, index: usize) -> &u64 {
        &self.operands[index]
    }
}

/// The operands of an operation's good call, in device memory.
#[derive(Debug)]
pub(super) struct Fixture<'a> {
    backend: &'a dyn ComputeBackend,
    other: &'a dyn ComputeBackend,
    operation: &'a Operation,
    handles: Handles,
}

impl<'a> Fixture<'a> {
    pub(super) fn new(
        backend: &'a dyn ComputeBackend,
        other: &'a dyn ComputeBackend,
        operation: &'a Operation,
    ) -> BackendResult<Self> {
        let mut operands = Vec::with_capacity(operation.slots.len());
        for slot in &operation.slots {
            let ptr = backend.alloc(slot.content.len())?;
            backend.copy_htod(ptr, &slot.content)?;
            operands.push(ptr);
        }
        let freed = backend.alloc(64)?;
        backend.free(freed)?;
        Ok(Self {
            backend,
            other,
            operation,
            handles: Handles { operands, freed, foreign: other.alloc(64)?, unknown: UNKNOWN },
        })
    }

    pub(super) fn backend(&self) -> &'a dyn ComputeBackend {
        self.backend
    }

    pub(super) fn operation(&self) -> &'a Operation {
        self.operation
    }

    pub(super) fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Makes the good call.
    pub(super) fn call(&self) -> BackendResult<()> {
        (self.operation.call)(self.backend, &self.handles)
    }

    /// Whether every buffer is as it was filled.
    pub(super) fn check_unchanged(&self) -> Result<(), String> {
        for (slot, &ptr) in self.operation.slots.iter().zip(&self.handles.operands) {
            check_bytes(self.backend, slot.arg, ptr, &slot.content)?;
        }
        Ok(())
    }

    /// Whether the good call works; leaves the buffers as they were filled.
    pub(super) fn check_good_call(&self) -> Result<(), String> {
        self.call().map_err(|error| format!("the good call failed: {error:?}"))?;
        self.check_result()
    }

    /// Whether the output holds the good call's result; fills it again.
    pub(super) fn check_result(&self) -> Result<(), String> {
        let Some(expected) = self.operation.result else {
            return Ok(());
        };
        for (slot, &ptr) in self.operation.slots.iter().zip(&self.handles.operands) {
            if slot.role != Role::Output {
                continue;
            }
            let mut bytes = vec![0; slot.content.len()];
            self.backend
                .copy_dtoh(&mut bytes, ptr)
                .map_err(|error| format!("reading {} failed: {error:?}", slot.arg))?;
            let tolerance = if slot.align == 2 { 2e-3 } else { 1e-5 } * expected.abs().max(1.0);
            let numbers = decode(slot.dtype, &bytes);
            let off = |number: &&f32| (**number - expected).abs() > tolerance || number.is_nan();
            if let Some(number) = numbers.iter().find(off) {
                return Err(format!("the good call gave {number} in {}, expected {expected}", slot.arg));
            }
            self.backend
                .copy_htod(ptr, &slot.content)
                .map_err(|error| format!("filling {} again failed: {error:?}", slot.arg))?;
        }
        Ok(())
    }
}

impl Drop for Fixture<'_> {
    fn drop(&mut self) {
        for &ptr in &self.handles.operands {
            _ = self.backend.free(ptr);
        }
        _ = self.other.free(self.handles.foreign);
    }
}

/// Whether `ptr`'s memory holds `expected`.
pub(super) fn check_bytes(
    backend: &dyn ComputeBackend,
    arg: &str,
    ptr: u64,
    expected: &[u8],
) -> Result<(), String> {
    let mut bytes = vec![0; expected.len()];
    backend
        .copy_dtoh(&mut bytes, ptr)
        .map_err(|error| format!("reading {arg} after it failed: {error:?}"))?;
    match bytes.iter().zip(expected).position(|(got, want)| got != want) {
        Some(at) => Err(format!("it changed byte {at} of {arg}")),
        None => Ok(()),
    }
}
