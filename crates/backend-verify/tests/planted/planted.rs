//! A backend with an error in one operation.

use std::sync::atomic::{AtomicBool, Ordering};

use backend_api::support::Access;
use backend_api::{BackendError, BackendResult, Command, ComputeBackend, forward};
use backend_cpu::CpuBackend;

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Plant {
    /// Bytes of an output, from this one on, become others.
    Bytes { at: usize, bytes: &'static [u8] },
    /// The call fails.
    Refusal,
    /// The call panics.
    Panic,
}

/// The CPU, with `plant` in the operation `op` while it is on.
#[derive(Debug)]
pub(crate) struct Planted {
    inner: CpuBackend,
    op: &'static str,
    plant: Plant,
    is_on: AtomicBool,
}

impl Planted {
    pub(crate) fn new(op: &'static str, plant: Plant) -> Self {
        Self { inner: CpuBackend::new(), op, plant, is_on: AtomicBool::new(true) }
    }

    fn spoil(&self, op: &'static str, command: &Command<'_>, at: usize, bytes: &[u8]) -> BackendResult<()> {
        let operands = command.operands(op)?;
        let Some(output) = operands.iter().find(|operand| operand.access == Access::Write) else {
            return Ok(());
        };
        let view = self.inner.view(output.ptr, output.offset + at, bytes.len())?;
        self.inner.copy_htod(view, bytes)?;
        self.inner.free(view)
    }
}

impl ComputeBackend for Planted {
    fn execute(&self, op: &'static str, command: Command<'_>) -> BackendResult<()> {
        let is_meant = op == self.op && self.is_on.load(Ordering::Relaxed);
        match self.plant {
            Plant::Refusal if is_meant => {
                Err(BackendError::Limit { op, what: "a planted size", requested: 2, max: 1 })
            }
            Plant::Panic if is_meant => panic!("a planted panic"),
            Plant::Bytes { at, bytes } if is_meant => {
                self.inner.execute(op, command)?;
                self.spoil(op, &command, at, bytes)
            }
            _ => self.inner.execute(op, command),
        }
    }

    forward!(this => this.inner; name, init, is_initialized, synchronize, alloc, alloc_zeroed, free, view);
    forward!(this => this.inner; copy_htod, copy_dtoh, copy_dtoh_async, capture, replay, free_graph);
    forward!(this => this.inner; capabilities, device_info, memory_stats, trim, set_memory_budget, as_any);
}
