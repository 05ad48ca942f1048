//! Allocations and the handles to them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backend_api::support::{Region, checked_add};
use backend_api::{BackendError, BackendResult, MemoryStats};
use parking_lot::{Mutex, RwLock};
use slotmap::{Key, KeyData, SlotMap, new_key_type};

/// Bytes of the largest allocation: whole words, and no more than any Rust object may have.
pub(crate) const MAX_ALLOC_BYTES: usize = isize::MAX as usize & !(WORD - 1);

const WORD: usize = size_of::<u32>();

/// The memory of one allocation. Words, so that every element type is aligned in it.
pub(crate) type Storage = RwLock<Box<[u32]>>;

new_key_type! {
    struct HandleKey;
    pub(crate) struct AllocationKey;
}

/// The memory of one backend.
pub(crate) struct Memory {
    table: Mutex<Table>,
}

/// What the handles mean.
pub(crate) struct Table {
    allocations: SlotMap<AllocationKey, Allocation>,
    handles: SlotMap<HandleKey, Handle>,
    in_use: usize,
    peak: usize,
    budget: Option<usize>,
    salt: u64,
}

struct Allocation {
    storage: Arc<Storage>,
    bytes: usize,
    handles: usize,
}

#[derive(Clone, Copy)]
struct Handle {
    allocation: AllocationKey,
    offset: usize,
    len: usize,
}

impl Memory {
    /// No memory yet.
    pub(crate) fn new() -> Self {
        Self {
            table: Mutex::new(Table {
                allocations: SlotMap::default(),
                handles: SlotMap::default(),
                in_use: 0,
                peak: 0,
                budget: None,
                salt: next_salt(),
            }),
        }
    }

    /// Looks at the table while no other thread does.
    pub(crate) fn with_table<R>(&self, look: impl FnOnce(&Table) -> R) -> R {
        look(&self.table.lock())
    }

    /// See [`ComputeBackend::alloc`](backend_api::ComputeBackend::alloc). The memory is zero, which the
    /// system gives for free.
    pub(crate) fn alloc(&self, requested: usize) -> BackendResult<u64> {
        if requested > MAX_ALLOC_BYTES {
            return Err(BackendError::Limit { op: "alloc", what: "bytes", requested, max: MAX_ALLOC_BYTES });
        }
        let words = requested.div_ceil(WORD);
        let bytes = words * WORD;
        let mut table = self.table.lock();
        let out_of_memory = BackendError::OutOfMemory { requested, in_use: table.in_use };
        let Some(in_use) = table.in_use.checked_add(bytes) else {
            return Err(out_of_memory);
        };
        if table.budget.is_some_and(|budget| in_use > budget) {
            return Err(out_of_memory);
        }
        let Ok(zeros) = bytemuck::allocation::try_zeroed_slice_box(words) else {
            return Err(out_of_memory);
        };
        table.in_use = in_use;
        table.peak = table.peak.max(in_use);
        let allocation =
            table.allocations.insert(Allocation { storage: Arc::new(RwLock::new(zeros)), bytes, handles: 0 });
        Ok(table.add_handle(Handle { allocation, offset: 0, len: requested }))
    }

    /// See [`ComputeBackend::view`](backend_api::ComputeBackend::view).
    pub(crate) fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        let op = "view";
        let mut table = self.table.lock();
        let parent = table.handle(ptr).ok_or(invalid(op, ptr))?;
        let need = checked_add(op, "end of the view", byte_offset, byte_len)?;
        if need > parent.len {
            return Err(BackendError::BufferTooSmall { op, arg: "ptr", have: parent.len, need });
        }
        Ok(table.add_handle(Handle {
            allocation: parent.allocation,
            offset: parent.offset + byte_offset,
            len: byte_len,
        }))
    }

    /// See [`ComputeBackend::free`](backend_api::ComputeBackend::free). A running operation keeps the memory
    /// it uses.
    pub(crate) fn free(&self, ptr: u64) -> BackendResult<()> {
        let mut table = self.table.lock();
        let key = table.key(ptr);
        let handle = table.handles.remove(key).ok_or(invalid("free", ptr))?;
        let Some(allocation) = table.allocations.get_mut(handle.allocation) else {
            return Ok(());
        };
        allocation.handles -= 1;
        if allocation.handles == 0 {
            table.in_use -= allocation.bytes;
            let last = table.allocations.remove(handle.allocation);
            // Giving much memory back takes time that other threads needn't wait for.
            drop(table);
            drop(last);
        }
        Ok(())
    }

    /// Nothing is kept for reuse and nothing is staged.
    pub(crate) fn stats(&self) -> MemoryStats {
        let table = self.table.lock();
        let mut stats = MemoryStats::default();
        stats.in_use = table.in_use;
        stats.peak = table.peak;
        stats.handles = table.handles.len();
        stats.budget = table.budget;
        stats
    }

    /// Bounds later allocations.
    pub(crate) fn set_budget(&self, budget: Option<usize>) {
        self.table.lock().budget = budget;
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

impl Table {
    /// The memory behind a handle, for the checks.
    pub(crate) fn region(&self, ptr: u64) -> Option<Region> {
        self.handle(ptr).map(|handle| Region {
            allocation: handle.allocation.data().as_ffi(),
            offset: handle.offset,
            len: handle.len,
        })
    }

    /// The memory behind a handle, for use: which allocation, and where in it the handle starts.
    pub(crate) fn storage(&self, ptr: u64) -> Option<(AllocationKey, Arc<Storage>, usize)> {
        let handle = self.handle(ptr)?;
        let allocation = self.allocations.get(handle.allocation)?;
        Some((handle.allocation, Arc::clone(&allocation.storage), handle.offset))
    }

    fn handle(&self, ptr: u64) -> Option<Handle> {
        self.handles.get(self.key(ptr)).copied()
    }

    fn add_handle(&mut self, handle: Handle) -> u64 {
        if let Some(allocation) = self.allocations.get_mut(handle.allocation) {
            allocation.handles += 1;
        }
        // The lower half of a key is a slot's number, which is never 0.
        self.handles.insert(handle).data().as_ffi() ^ self.salt
    }

    /// The key behind a handle; the null key for a number that no key has.
    fn key(&self, ptr: u64) -> HandleKey {
        let value = ptr ^ self.salt;
        let key = KeyData::from_ffi(value);
        // Every number makes a key, but not every number comes from one.
        if key.as_ffi() == value { key.into() } else { HandleKey::null() }
    }
}

fn invalid(op: &'static str, ptr: u64) -> BackendError {
    BackendError::InvalidHandle { op, arg: "ptr", ptr }
}

/// What tells the handles of one backend from those of another.
///
/// A key's upper half is the slot's version, which is odd and starts at 1. Multiples of 2³¹ times the golden
/// ratio lie far apart modulo 2³², so one backend's handle becomes another's only after a slot of that one
/// has been reused about 2³¹ divided by the number of backends times.
fn next_salt() -> u64 {
    static BACKENDS: AtomicU64 = AtomicU64::new(0);
    let index = BACKENDS.fetch_add(1, Ordering::Relaxed);
    let spread = index.wrapping_mul(0x9E37_79B9) & 0xFFFF_FFFE;
    spread << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::ErrorKind;

    fn kind<T>(result: BackendResult<T>) -> Option<ErrorKind> {
        result.err().map(|error| error.kind())
    }

    #[test]
    fn memory_lives_until_its_last_handle_is_freed() {
        let memory = Memory::new();
        let whole = memory.alloc(10).unwrap();
        let part = memory.view(whole, 2, 4).unwrap();
        let inner = memory.view(part, 4, 0).unwrap();
        assert_eq!((memory.stats().in_use, memory.stats().handles), (12, 3));
        memory.free(whole).unwrap();
        memory.free(part).unwrap();
        assert_eq!(memory.stats().in_use, 12);
        assert_eq!(kind(memory.free(whole)), Some(ErrorKind::InvalidHandle));
        assert_eq!(kind(memory.view(part, 0, 1)), Some(ErrorKind::InvalidHandle));
        memory.free(inner).unwrap();
        assert_eq!((memory.stats().in_use, memory.stats().peak), (0, 12));
    }

    #[test]
    fn a_reused_slot_has_another_handle() {
        let memory = Memory::new();
        let first = memory.alloc(4).unwrap();
        memory.free(first).unwrap();
        let second = memory.alloc(4).unwrap();
        assert_ne!(first, second);
        assert!(memory.with_table(|table| table.region(first)).is_none());
    }

    #[test]
    fn numbers_that_no_handle_has_are_not_live() {
        let memory = Memory::new();
        let live = memory.alloc(4).unwrap();
        for ptr in [0, 1, u64::MAX, live ^ 1, live ^ (1 << 32), live ^ (1 << 63), live & 0xFFFF_FFFF] {
            let known = memory.with_table(|table| table.region(ptr));
            assert!(ptr == live || known.is_none(), "{ptr:#x}");
        }
        let others: Vec<Memory> = (0..100).map(|_| Memory::new()).collect();
        for other in &others {
            other.alloc(4).unwrap();
            assert!(other.with_table(|table| table.region(live)).is_none());
        }
    }

    #[test]
    fn a_view_stays_inside_its_handle() {
        let memory = Memory::new();
        let part = memory.view(memory.alloc(16).unwrap(), 4, 8).unwrap();
        assert!(memory.view(part, 8, 0).is_ok());
        assert_eq!(kind(memory.view(part, 4, 5)), Some(ErrorKind::BufferTooSmall));
        assert_eq!(kind(memory.view(part, usize::MAX, 2)), Some(ErrorKind::Overflow));
    }

    #[test]
    fn too_much_is_an_error() {
        let memory = Memory::new();
        assert_eq!(kind(memory.alloc(usize::MAX)), Some(ErrorKind::Limit));
        assert_eq!(kind(memory.alloc(MAX_ALLOC_BYTES)), Some(ErrorKind::OutOfMemory));
        memory.set_budget(Some(100));
        let half = memory.alloc(60).unwrap();
        assert_eq!(kind(memory.alloc(60)), Some(ErrorKind::OutOfMemory));
        memory.free(half).unwrap();
        assert!(memory.alloc(100).is_ok());
        assert!(memory.alloc(0).is_ok());
    }
}
