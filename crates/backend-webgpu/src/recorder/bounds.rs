//! How many commands a batch has, and how many batches are in flight.

use backend_api::BackendResult;

use super::{Recorder, Ticket};
use crate::sync::bound;

/// Commands of a batch, dispatches and uploads. Enough to make the cost of a submission small, few enough to
/// start the device early and to bound what an encoder holds.
pub(super) const MAX_COMMANDS: usize = bound(128, 3);

/// Doublings of [`MAX_COMMANDS`] on a discrete GPU, one for each batch that waits behind the one being worked on. Between
/// two submissions such a device stands still for as long as several small launches take.
const DOUBLINGS: usize = bound(2, 1);

/// Batches in flight: one being worked on, one waiting, so that the device never runs dry.
const MAX_IN_FLIGHT: usize = bound(3, 2);

/// Batches in flight from which on every call waits, also one whose commands still fit into the open batch.
/// Long operations are submitted in many batches of few commands.
const MAX_BACKLOG: usize = bound(32, 3);

impl Recorder {
    /// Has batches grow with how many wait.
    pub(crate) fn grow_batches(&mut self) {
        self.doublings = DOUBLINGS;
    }

    /// The most commands of the open batch, which may be long where the device has enough to do.
    pub(super) fn most_commands(&self) -> usize {
        let waiting = self.flight.len().saturating_sub(1);
        MAX_COMMANDS << waiting.min(self.doublings)
    }

    /// Makes room for so many commands. Returns the batch to wait for, if the device is too far behind. In a
    /// browser nothing may wait, and the bound is the page's.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn admit(&mut self, count: usize) -> BackendResult<Option<Ticket>> {
        self.submitter.health().check()?;
        let commands = self.commands + count;
        // Asked at each multiple of the shortest batch's commands, as a poll takes longer than recording some of them.
        let is_multiple =
            commands.saturating_sub(1) / MAX_COMMANDS > self.commands.saturating_sub(1) / MAX_COMMANDS;
        if (self.commands == 0 || !is_multiple) && self.flight.len() < MAX_BACKLOG {
            return Ok(None);
        }
        self.submitter.poll();
        self.retire();
        let fits = self.commands == 0 || commands <= self.most_commands();
        let most = if fits { MAX_BACKLOG } else { MAX_IN_FLIGHT };
        if self.flight.len() >= most && !cfg!(target_family = "wasm") {
            return Ok(self.oldest());
        }
        if !fits {
            self.next_batch()?;
        }
        Ok(None)
    }

    /// The batch to wait for before a read, if the device is too far behind. A read that has run out of time leaves its
    /// batch in flight.
    pub(crate) fn backlog(&mut self) -> Option<Ticket> {
        if self.flight.len() < MAX_BACKLOG {
            return None;
        }
        self.submitter.poll();
        self.retire();
        self.oldest().filter(|_| self.flight.len() >= MAX_BACKLOG)
    }
}
