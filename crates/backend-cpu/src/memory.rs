//! Allocations and the handles to them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backend_api::support::{Operand, Region, checked_add, decode_handle, encode_handle};
use backend_api::{BackendError, BackendResult, MemoryStats};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
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

/// The memory of one backend, as its calls see it.
pub(crate) struct Memory {
    shared: Arc<Shared>,
    role: Role,
}

/// What all calls share.
struct Shared {
    table: Mutex<Table>,
    /// Held for reading by each operation, for writing by a replay, which is one call to other threads.
    turn: RwLock<()>,
}

/// What a call does with its operation.
enum Role {
    /// The operation runs.
    Run,
    /// The operation is checked, and the memory that it names is held.
    Check(Mutex<Held>),
    /// The operation runs on the memory that is held, whether its handles are still live or not, and without a
    /// turn of its own.
    Replay(Held),
}

/// Memory that outlives its handles, by the handles that named it.
struct Held {
    shared: Arc<Shared>,
    handles: HashMap<u64, (Handle, Arc<Storage>)>,
}

/// What an operand's handle names.
pub(crate) struct Named {
    pub(crate) allocation: AllocationKey,
    pub(crate) storage: Arc<Storage>,
    pub(crate) region: Region,
}

/// What the handles mean.
struct Table {
    allocations: SlotMap<AllocationKey, Allocation>,
    handles: SlotMap<HandleKey, Handle>,
    in_use: usize,
    asked: usize,
    peak: usize,
    budget: Option<usize>,
    salt: u64,
}

struct Allocation {
    storage: Arc<Storage>,
    bytes: usize,
    /// Of these, what was asked for.
    asked: usize,
    /// Its handles, and those of its handles that graphs hold.
    users: usize,
}

#[derive(Clone, Copy)]
struct Handle {
    allocation: AllocationKey,
    offset: usize,
    len: usize,
}

impl Handle {
    fn region(self) -> Region {
        Region { allocation: self.allocation.data().as_ffi(), offset: self.offset, len: self.len }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut table = self.shared.table.lock();
        let handles = std::mem::take(&mut self.handles);
        let last: Vec<_> =
            handles.into_values().map(|(handle, storage)| (storage, table.release(handle))).collect();
        // Giving much memory back takes time that other threads needn't wait for.
        drop(table);
        drop(last);
    }
}

impl Memory {
    /// No memory yet.
    pub(crate) fn new() -> Self {
        let table = Mutex::new(Table {
            allocations: SlotMap::default(),
            handles: SlotMap::default(),
            in_use: 0,
            asked: 0,
            peak: 0,
            budget: None,
            salt: next_salt(),
        });
        Self { shared: Arc::new(Shared { table, turn: RwLock::default() }), role: Role::Run }
    }

    /// This memory for operations that are only checked. What they name is held from then on.
    pub(crate) fn for_checks(&self) -> Self {
        let held = Held { shared: Arc::clone(&self.shared), handles: HashMap::new() };
        Self { shared: Arc::clone(&self.shared), role: Role::Check(Mutex::new(held)) }
    }

    /// What was held by checks, for operations that run on it.
    pub(crate) fn for_replays(self) -> Self {
        let role = match self.role {
            Role::Check(held) => Role::Replay(held.into_inner()),
            other => other,
        };
        Self { shared: self.shared, role }
    }

    /// Keeps all operations but replays of the caller's own away.
    pub(crate) fn exclusive_turn(&self) -> RwLockWriteGuard<'_, ()> {
        self.shared.turn.write()
    }

    /// A turn for one operation, beside those of other threads; `None` if operations are only checked.
    pub(crate) fn turn(&self) -> Option<Option<RwLockReadGuard<'_, ()>>> {
        match self.role {
            Role::Run => Some(Some(self.shared.turn.read())),
            Role::Check(_) => None,
            Role::Replay(_) => Some(None),
        }
    }

    /// What handles name, as one look at the table.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&dyn Fn(u64) -> Option<Named>) -> R) -> R {
        let named = |handle: Handle, storage: &Arc<Storage>| Named {
            allocation: handle.allocation,
            storage: Arc::clone(storage),
            region: handle.region(),
        };
        if let Role::Replay(held) = &self.role {
            return look(&|ptr| held.handles.get(&ptr).map(|(handle, storage)| named(*handle, storage)));
        }
        let table = self.shared.table.lock();
        look(&|ptr| {
            let handle = table.handle(ptr)?;
            table.allocations.get(handle.allocation).map(|allocation| named(handle, &allocation.storage))
        })
    }

    /// Holds what an operand's handle names, if operations are only checked.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle), if another thread has freed it since the check.
    pub(crate) fn hold(&self, op: &'static str, operand: &Operand) -> BackendResult<()> {
        let Operand { arg, ptr, .. } = *operand;
        let Role::Check(held) = &self.role else { return Ok(()) };
        let mut held = held.lock();
        let mut table = self.shared.table.lock();
        let invalid = BackendError::InvalidHandle { op, arg, ptr };
        let Some(handle) = table.handle(ptr) else { return Err(invalid) };
        if held.handles.contains_key(&ptr) {
            return Ok(());
        }
        let allocation = table.allocations.get_mut(handle.allocation).ok_or(invalid)?;
        allocation.users += 1;
        held.handles.insert(ptr, (handle, Arc::clone(&allocation.storage)));
        Ok(())
    }

    /// See [`ComputeBackend::alloc`](backend_api::ComputeBackend::alloc). The memory is zero, which the
    /// system gives for free.
    pub(crate) fn alloc(&self, op: &'static str, requested: usize) -> BackendResult<u64> {
        if requested > MAX_ALLOC_BYTES {
            return Err(BackendError::Limit { op, what: "bytes", requested, max: MAX_ALLOC_BYTES });
        }
        let words = requested.div_ceil(WORD);
        let bytes = words * WORD;
        let mut table = self.shared.table.lock();
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
        table.asked += requested;
        let storage = Arc::new(RwLock::new(zeros));
        let allocation = table.allocations.insert(Allocation { storage, bytes, asked: requested, users: 0 });
        Ok(table.add_handle(Handle { allocation, offset: 0, len: requested }))
    }

    /// See [`ComputeBackend::view`](backend_api::ComputeBackend::view).
    pub(crate) fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        let op = "view";
        let mut table = self.shared.table.lock();
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
        let mut table = self.shared.table.lock();
        let key = table.key(ptr);
        let handle = table.handles.remove(key).ok_or(invalid("free", ptr))?;
        let last = table.release(handle);
        // Giving much memory back takes time that other threads needn't wait for.
        drop(table);
        drop(last);
        Ok(())
    }

    /// Nothing is kept for reuse and nothing is staged.
    pub(crate) fn stats(&self) -> MemoryStats {
        let table = self.shared.table.lock();
        let mut stats = MemoryStats::default();
        stats.in_use = table.in_use;
        stats.asked = table.asked;
        stats.peak = table.peak;
        stats.handles = table.handles.len();
        stats.budget = table.budget;
        stats
    }

    /// Bounds later allocations.
    pub(crate) fn set_budget(&self, budget: Option<usize>) {
        self.shared.table.lock().budget = budget;
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

impl Table {
    fn handle(&self, ptr: u64) -> Option<Handle> {
        self.handles.get(self.key(ptr)).copied()
    }

    fn add_handle(&mut self, handle: Handle) -> u64 {
        if let Some(allocation) = self.allocations.get_mut(handle.allocation) {
            allocation.users += 1;
        }
        // The lower half of a key is a slot's number, which is never 0.
        encode_handle(self.handles.insert(handle).data().as_ffi() ^ self.salt)
    }

    /// Takes a handle's part in its allocation back; the allocation, if that was the last.
    fn release(&mut self, handle: Handle) -> Option<Allocation> {
        let allocation = self.allocations.get_mut(handle.allocation)?;
        allocation.users -= 1;
        if allocation.users > 0 {
            return None;
        }
        self.in_use -= allocation.bytes;
        self.asked -= allocation.asked;
        self.allocations.remove(handle.allocation)
    }

    /// The key behind a handle; the null key for a number that no key has.
    fn key(&self, ptr: u64) -> HandleKey {
        let value = decode_handle(ptr) ^ self.salt;
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
mod tests;
