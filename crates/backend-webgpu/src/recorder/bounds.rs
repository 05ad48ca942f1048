//! How many commands a batch has, and how many batches are in flight.

use std::ops::Add;

use backend_api::BackendResult;

use super::params::SLOTS;
use super::{Recorder, Ticket};
use crate::sync::bound;

/// Commands of a batch, dispatches and uploads. Enough to make the cost of a submission small, few enough to
/// start the device early and to bound what an encoder holds.
pub(super) const MAX_COMMANDS: usize = bound(128, 3);
const _: () = assert!(MAX_COMMANDS <= SLOTS, "every dispatch that isn't of a graph needs a slot");

/// Doublings of [`MAX_COMMANDS`] on a discrete GPU, one for each batch that waits behind the one being worked on. Between
/// two submissions such a device stands still for as long as several small launches take. Commands whose time isn't estimated
/// don't become more: some drivers reset a device that is long over one submission.
const DOUBLINGS: usize = bound(2, 1);

/// Commands with which a discrete GPU begins that has no batch to work on, while the rest is recorded. A submission takes the
/// host as long as some dozens of commands.
const BEGINS_WITH: usize = bound(16, 2);

/// Batches in flight: one being worked on, one waiting, so that the device never runs dry.
const MAX_IN_FLIGHT: usize = bound(3, 2);

/// Batches in flight from which on every call waits, also one whose commands still fit into the open batch.
/// Long operations are submitted in many batches of few commands.
const MAX_BACKLOG: usize = bound(32, 3);

/// How many commands a batch has, or gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(super) all: usize,
    /// Commands whose time isn't estimated.
    pub(super) untimed: usize,
}

impl Count {
    /// Commands of which none has an estimated time.
    pub(crate) const fn untimed(count: usize) -> Self {
        Self { all: count, untimed: count }
    }

    pub(crate) const fn is_none(self) -> bool {
        self.all == 0
    }
}

impl Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { all: self.all + other.all, untimed: self.untimed + other.untimed }
    }
}

impl Recorder {
    /// Has batches grow with how many wait, and a device that has no batch to work on begin with a few commands.
    pub(crate) fn suit_discrete_gpu(&mut self) {
        self.suits_discrete_gpu = true;
    }

    /// Whether the device has finished, as far as is known, all batches that were handed over.
    pub(super) fn is_idle(&self) -> bool {
        self.unfinished() == 0
    }

    /// Whether the device has nothing to do and the open batch enough for it to begin with.
    pub(super) fn should_begin(&self) -> bool {
        let may_begin = self.suits_discrete_gpu && !self.stays_together;
        may_begin && self.commands.all >= BEGINS_WITH && self.is_idle()
    }

    /// Batches in flight that the device hasn't finished, as far as is known.
    fn unfinished(&self) -> usize {
        let finished = self.submitter.progress().finished();
        self.flight.iter().filter(|batch| batch.ticket.batch > finished).count()
    }

    /// Whether the open batch, which has some, takes so many commands more. It may be long where the device has enough to do.
    pub(super) fn has_room(&self, more: Count) -> bool {
        let Count { all, untimed } = self.commands + more;
        untimed <= MAX_COMMANDS && (all <= MAX_COMMANDS || all <= self.most_commands())
    }

    fn most_commands(&self) -> usize {
        let waiting = self.unfinished().saturating_sub(1);
        let doublings = if self.suits_discrete_gpu { DOUBLINGS } else { 0 };
        MAX_COMMANDS << waiting.min(doublings)
    }

    /// Makes room for the commands of a call, of which `first` go into one batch. Returns the batch to wait for, if the
    /// device is too far behind. In a browser nothing may wait, and the bound is the page's.
    ///
    /// # Errors
    /// [`DeviceLost`](BackendError::DeviceLost).
    pub(crate) fn admit(&mut self, first: Count, whole: Count) -> BackendResult<Option<Ticket>> {
        self.submitter.health().check()?;
        let is_empty = self.commands.is_none();
        // Of how many are in flight, only a poll tells, which takes longer than recording some commands.
        let parts = |commands: usize| commands.saturating_sub(1) / MAX_COMMANDS;
        let is_next_part = parts(self.commands.all + whole.all) > parts(self.commands.all);
        if (is_empty || !is_next_part && self.has_room(whole)) && self.flight.len() < MAX_BACKLOG {
            return Ok(None);
        }
        self.submitter.poll();
        self.retire();
        let most = if is_empty || self.has_room(whole) { MAX_BACKLOG } else { MAX_IN_FLIGHT };
        if self.flight.len() >= most && !cfg!(target_family = "wasm") {
            return Ok(self.oldest());
        }
        if !is_empty && !self.has_room(first) {
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
