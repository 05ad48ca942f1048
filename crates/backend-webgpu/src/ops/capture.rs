//! Calls that are captured: their commands are kept for a graph instead of being recorded.

use std::sync::Arc;

use backend_api::BackendResult;

use super::scratch::take_fitting;
use super::shared::pace::Pace;
use crate::memory::{Block, DeviceSlice};
use crate::recorder::Command;
use crate::sync::Mutex;

/// What was captured so far.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    commands: Mutex<Vec<Command>>,
    /// Scratch memory of earlier calls. Replays run in order, so a later call may use it again.
    scratch: Mutex<Vec<Arc<Block>>>,
    /// Where replays are cut, apart from what is recorded meanwhile.
    pace: Pace,
}

impl Capture {
    /// The commands of the calls that succeeded.
    pub(crate) fn take(&self) -> Vec<Command> {
        std::mem::take(&mut self.commands.lock())
    }
}

/// A call that is captured.
#[derive(Debug)]
pub(super) struct CapturedCall {
    capture: Arc<Capture>,
    commands: Mutex<Vec<Command>>,
    scratch: Mutex<Vec<Arc<Block>>>,
    /// Estimated time of what is launched next.
    seconds: Mutex<f64>,
}

impl CapturedCall {
    pub(super) fn new(capture: &Arc<Capture>) -> Self {
        Self {
            capture: Arc::clone(capture),
            commands: Mutex::default(),
            scratch: Mutex::default(),
            seconds: Mutex::default(),
        }
    }

    /// The next call of the same capture.
    pub(super) fn next(&self) -> Self {
        Self::new(&self.capture)
    }

    pub(super) fn expect(&self, seconds: f64) {
        self.capture.pace.add(seconds);
        *self.seconds.lock() += seconds;
    }

    pub(super) fn push(&self, mut command: Command) {
        command.begins_batch = self.capture.pace.take_due();
        command.seconds = std::mem::take(&mut self.seconds.lock());
        self.commands.lock().push(command);
    }

    /// Scratch memory that the call hasn't taken before: that of an earlier call, if some has the size.
    pub(super) fn scratch(
        &self,
        bytes: usize,
        allocate: impl FnOnce() -> BackendResult<DeviceSlice>,
    ) -> BackendResult<DeviceSlice> {
        let reused = take_fitting(&mut self.capture.scratch.lock(), bytes);
        let slice = match reused {
            Some(block) => DeviceSlice { block, offset: 0, len: bytes },
            None => allocate()?,
        };
        self.scratch.lock().push(Arc::clone(&slice.block));
        Ok(slice)
    }

    /// Adds the call's commands to the capture.
    pub(super) fn commit(&self) {
        self.capture.commands.lock().append(&mut self.commands.lock());
        self.capture.scratch.lock().append(&mut self.scratch.lock());
    }
}
