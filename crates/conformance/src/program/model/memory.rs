//! Allocations as bytes on the host, with what is known of each bit.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use backend_api::support::{Operand, Region, check, checked_add};
use backend_api::{BackendError, BackendResult, DType};

use super::element::Element;

/// The largest allocation that a program makes; more is refused, as devices may.
pub(in super::super) const MAX_ALLOC: usize = 1 << 28;

/// What the handles mean.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    allocations: HashMap<u64, Allocation>,
    handles: Handles,
}

/// What handles mean.
pub(super) type Handles = HashMap<u64, Region>;

#[derive(Clone, Debug)]
struct Allocation {
    bytes: Vec<u8>,
    /// Which bits of each byte are known.
    known: Vec<u8>,
    /// Its handles, and those that graphs hold.
    handles: usize,
    /// What was written since the last successful wait.
    unsettled: Option<Range<usize>>,
    /// Whether its buffer was destroyed.
    dead: bool,
}

/// A number that is none of any other handle or allocation.
pub(super) fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Memory {
    /// New memory, of which nothing is known, or which is zero.
    pub(super) fn alloc(&mut self, len: usize, zeroed: bool) -> BackendResult<u64> {
        if len > MAX_ALLOC {
            return Err(BackendError::Limit { op: "alloc", what: "bytes", requested: len, max: MAX_ALLOC });
        }
        let id = fresh();
        let known = vec![if zeroed { 0xff } else { 0 }; len];
        let new = Allocation { bytes: vec![0; len], known, handles: 0, unsettled: None, dead: false };
        self.allocations.insert(id, new);
        Ok(self.handle(Region { allocation: id, offset: 0, len }))
    }

    fn handle(&mut self, region: Region) -> u64 {
        let ptr = fresh();
        if let Some(allocation) = self.allocations.get_mut(&region.allocation) {
            allocation.handles += 1;
        }
        self.handles.insert(ptr, region);
        ptr
    }

    pub(super) fn view(&mut self, ptr: u64, offset: usize, len: usize) -> BackendResult<u64> {
        let op = "view";
        let parent = self.region(ptr).ok_or(BackendError::InvalidHandle { op, arg: "ptr", ptr })?;
        let need = checked_add(op, "end of the view", offset, len)?;
        if need > parent.len {
            return Err(BackendError::BufferTooSmall { op, arg: "ptr", have: parent.len, need });
        }
        Ok(self.handle(Region { allocation: parent.allocation, offset: parent.offset + offset, len }))
    }

    pub(super) fn free(&mut self, ptr: u64) -> BackendResult<()> {
        let invalid = BackendError::InvalidHandle { op: "free", arg: "ptr", ptr };
        let region = self.handles.remove(&ptr).ok_or(invalid)?;
        self.release(region);
        Ok(())
    }

    fn release(&mut self, region: Region) {
        if let Some(allocation) = self.allocations.get_mut(&region.allocation) {
            allocation.handles -= 1;
            if allocation.handles == 0 {
                self.allocations.remove(&region.allocation);
            }
        }
    }

    /// All live handles, whose memory is held until [`release_all`](Self::release_all).
    pub(super) fn hold_all(&mut self) -> Handles {
        for region in self.handles.values() {
            if let Some(allocation) = self.allocations.get_mut(&region.allocation) {
                allocation.handles += 1;
            }
        }
        self.handles.clone()
    }

    pub(super) fn release_all(&mut self, held: &Handles) {
        held.values().for_each(|&region| self.release(region));
    }

    /// Exchanges the live handles for others.
    pub(super) fn with_handles(&mut self, handles: Handles) -> Handles {
        std::mem::replace(&mut self.handles, handles)
    }

    pub(super) fn region(&self, ptr: u64) -> Option<Region> {
        self.handles.get(&ptr).copied()
    }

    pub(super) fn check<const N: usize>(
        &self,
        op: &'static str,
        operands: &[Operand; N],
    ) -> BackendResult<()> {
        check(op, operands, |ptr| self.region(ptr))
    }

    /// The first `len` bytes behind a handle, each with its known bits; none for a handle that is not live.
    pub(super) fn bytes(&self, ptr: u64, len: usize) -> Vec<(u8, u8)> {
        let Some((allocation, at)) = self.place(ptr, 0, len) else { return Vec::new() };
        let (bytes, known) = (&allocation.bytes[at.clone()], &allocation.known[at]);
        bytes.iter().copied().zip(known.iter().copied()).collect()
    }

    /// Writes bytes with their known bits.
    pub(super) fn write(&mut self, ptr: u64, start: usize, data: &[(u8, u8)]) {
        let Some(Region { allocation, offset, len }) = self.region(ptr) else { return };
        let Some(allocation) = self.allocations.get_mut(&allocation) else { return };
        if data.is_empty() || start + data.len() > len {
            return;
        }
        let at = offset + start;
        for (i, &(byte, known)) in data.iter().enumerate() {
            (allocation.bytes[at + i], allocation.known[at + i]) = (byte, known);
        }
        let written = at..at + data.len();
        allocation.unsettled = Some(match allocation.unsettled.take() {
            None => written,
            Some(other) => other.start.min(written.start)..other.end.max(written.end),
        });
    }

    pub(super) fn get(&self, ptr: u64, dtype: DType, index: usize) -> Element {
        let size = dtype.size();
        let Some((allocation, at)) = self.place(ptr, index * size, size) else { return Element::UNKNOWN };
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        Element { bits: word(&allocation.bytes[at.clone()]), known: word(&allocation.known[at]) }
    }

    pub(super) fn set(&mut self, ptr: u64, dtype: DType, index: usize, element: Element) {
        let (bits, known) = (element.bits.to_le_bytes(), element.known.to_le_bytes());
        let data: Vec<(u8, u8)> = bits.into_iter().zip(known).take(dtype.size()).collect();
        self.write(ptr, index * dtype.size(), &data);
    }

    fn place(&self, ptr: u64, start: usize, len: usize) -> Option<(&Allocation, Range<usize>)> {
        let region = self.region(ptr)?;
        let allocation = self.allocations.get(&region.allocation)?;
        let at = region.offset + start;
        (start + len <= region.len).then_some((allocation, at..at + len))
    }

    /// What was written up to here is done.
    pub(super) fn settle(&mut self) {
        self.allocations.values_mut().for_each(|allocation| allocation.unsettled = None);
    }

    /// What was written since the last successful wait may not have been.
    pub(super) fn forget_unsettled(&mut self) {
        for allocation in self.allocations.values_mut() {
            if let Some(range) = allocation.unsettled.take() {
                allocation.known[range].fill(0);
            }
        }
    }

    pub(super) fn kill(&mut self, ptr: u64) {
        if let Some(region) = self.region(ptr)
            && let Some(allocation) = self.allocations.get_mut(&region.allocation)
        {
            allocation.dead = true;
            allocation.known.fill(0);
        }
    }

    pub(super) fn is_dead(&self, ptr: u64) -> bool {
        self.region(ptr).is_some_and(|region| self.has_died(region))
    }

    /// Whether the buffer of some memory was destroyed.
    pub(super) fn has_died(&self, region: Region) -> bool {
        self.allocations.get(&region.allocation).is_some_and(|allocation| allocation.dead)
    }
}
