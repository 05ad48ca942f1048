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
    /// The last commands of which each is the whole of a call, and was planned behind the one before.
    linked: usize,
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

    /// What the last captured command makes, for a call that has no commands yet.
    pub(super) fn made_before(&self) -> Option<Made> {
        let made = self.capture.captured.lock().made.clone();
        self.before.lock().clone_from(&made);
        made
    }

    /// Puts a command in the place of the last captured one, which `made` something, or of those of so many calls, of which each
    /// has one; whether they still are the last ones, as other threads may capture too.
    pub(super) fn replace(&self, (made, calls): (&Made, usize), mut command: Command) -> bool {
        let mut captured = self.capture.captured.lock();
        let is_last = captured.made.as_ref().is_some_and(|last| Arc::ptr_eq(last, made));
        if !is_last || calls > captured.linked.max(1) {
            return false;
        }
        let first = captured.commands.len() - calls;
        for replaced in captured.commands.drain(first..) {
            command.begins_batch |= replaced.begins_batch;
            command.seconds += replaced.seconds;
        }
        captured.commands.push(command);
        (captured.made, captured.linked) = (None, 0);
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
            captured.linked = match own.commands.len() {
                1 if goes_on => captured.linked + 1,
                1 => 1,
                _ => 0,
            };
            captured.commands.append(&mut own.commands);
            captured.made = own.made;
        }
        self.capture.scratch.lock().append(&mut self.scratch.lock());
    }
}
