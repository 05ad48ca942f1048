//! Calls that are captured: their commands are kept for a graph instead of being recorded.
//!
//! A call that goes on with the result of the last one may put one launch in the place of both.

use std::any::Any;
use std::sync::Arc;

use backend_api::BackendResult;

use super::scratch::take_fitting;
use super::shared::pace::Pace;
use crate::memory::{Block, DeviceSlice};
use crate::recorder::Command;
use crate::sync::Mutex;

/// What a command makes, in the words of the file that launched it.
#[cfg(not(target_family = "wasm"))]
pub(super) type Made = Arc<dyn Any + Send + Sync>;

/// What a command makes, in the words of the file that launched it. Buffers of a page belong to its thread.
#[cfg(target_family = "wasm")]
pub(super) type Made = Arc<dyn Any>;

/// What was captured so far.
#[derive(Debug, Default)]
pub(crate) struct Capture {
    captured: Mutex<Captured>,
    /// Scratch memory of earlier calls. Replays run in order, so a later call may use it again.
    scratch: Mutex<Vec<Arc<Block>>>,
    /// Where replays are cut, apart from what is recorded meanwhile.
    pace: Pace,
}

/// The commands of the calls that succeeded.
#[derive(Debug, Default)]
struct Captured {
    commands: Vec<Command>,
    /// What the last of them makes, if the next call may go on with it.
    made: Option<Made>,
    /// How many commands each of the last calls has, of those that were planned right behind each other.
    linked: Vec<usize>,
}

/// What a command takes the place of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replaced {
    /// The last command.
    Launch,
    /// All commands of the last call, and the one command of the call before.
    BothCalls,
}

impl Capture {
    /// The commands of the calls that succeeded.
    pub(crate) fn take(&self) -> Vec<Command> {
        std::mem::take(&mut *self.captured.lock()).commands
    }
}

/// A call that is captured.
#[derive(Debug)]
pub(super) struct CapturedCall {
    capture: Arc<Capture>,
    own: Mutex<Captured>,
    /// What the last captured command made when this call asked for it.
    before: Mutex<Option<Made>>,
    scratch: Mutex<Vec<Arc<Block>>>,
    /// Estimated time of what is launched next.
    seconds: Mutex<f64>,
}

impl CapturedCall {
    pub(super) fn new(capture: &Arc<Capture>) -> Self {
        Self {
            capture: Arc::clone(capture),
            own: Mutex::default(),
            before: Mutex::default(),
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
        let mut own = self.own.lock();
        own.commands.push(command);
        own.made = None;
    }

    /// Notes what the last command makes.
    pub(super) fn note_made(&self, made: Made) {
        self.own.lock().made = Some(made);
    }

    /// What the last captured command makes; `None` where this call has commands of its own, such as copies of operands, on which
    /// it may depend.
    pub(super) fn made_before(&self) -> Option<Made> {
        if !self.own.lock().commands.is_empty() {
            return None;
        }
        let made = self.capture.captured.lock().made.clone();
        self.before.lock().clone_from(&made);
        made
    }

    /// Puts a command in the place of the last captured ones, of which the last `made` something; whether they still are the last
    /// ones, as other threads may capture too.
    pub(super) fn replace(&self, made: &Made, replaced: Replaced, mut command: Command) -> bool {
        let mut captured = self.capture.captured.lock();
        let is_last = captured.made.as_ref().is_some_and(|last| Arc::ptr_eq(last, made));
        let count = match (replaced, captured.linked.as_slice()) {
            (Replaced::Launch, _) => 1,
            // Other commands of the first call could be copies, or write what the new launch doesn't.
            (Replaced::BothCalls, [.., 1, last]) => 1 + last,
            (Replaced::BothCalls, _) => return false,
        };
        let Some(first) = captured.commands.len().checked_sub(count) else { return false };
        if !is_last {
            return false;
        }
        for replaced in captured.commands.drain(first..) {
            command.begins_batch |= replaced.begins_batch;
            command.seconds += replaced.seconds;
        }
        captured.commands.push(command);
        (captured.made, captured.linked) = (None, Vec::new());
        true
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
        let mut own = std::mem::take(&mut *self.own.lock());
        // A call without commands leaves the last one's.
        if !own.commands.is_empty() {
            let mut captured = self.capture.captured.lock();
            let before = self.before.lock().take();
            let goes_on = before.zip(captured.made.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(&a, b));
            if !goes_on {
                captured.linked.clear();
            }
            captured.linked.push(own.commands.len());
            captured.commands.append(&mut own.commands);
            captured.made = own.made;
        }
        self.capture.scratch.lock().append(&mut self.scratch.lock());
    }
}
