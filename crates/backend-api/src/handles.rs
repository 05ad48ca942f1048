//! The table behind a backend's handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slotmap::{DefaultKey, Key, KeyData, SlotMap};

use crate::handle_code::{decode_handle, encode_handle};
use crate::operand::Region;
use crate::{BackendError, BackendResult, checked_add};

/// A part of an allocation of type `B`, as a handle names it.
#[derive(Debug)]
pub struct Slice<B> {
    /// The allocation, kept alive by every slice of it.
    pub block: Arc<B>,
    /// First byte in the allocation.
    pub offset: usize,
    /// Bytes from there on.
    pub len: usize,
}

impl<B> Clone for Slice<B> {
    fn clone(&self) -> Self {
        Self { block: Arc::clone(&self.block), ..*self }
    }
}

impl<B> Slice<B> {
    /// The slice's [`Region`], the allocation identified by its address.
    #[must_use]
    pub fn region(&self) -> Region {
        Region { allocation: Arc::as_ptr(&self.block) as usize as u64, offset: self.offset, len: self.len }
    }
}

/// The live handles of one opened backend, each a [`Slice`] of an allocation.
///
/// A handle comes from a slotmap key with its generation, so a freed handle is told from a live one at once.
/// The key's upper 40 bits are mixed with a number that differs from table to table, so that a handle of one
/// table is none of another: after a device is lost and opened again, the handles from before are invalid.
/// [`encode_handle`] moves what comes of that far apart, so that a handle plus an offset, as of a pointer, is
/// invalid too.
#[derive(Debug)]
pub struct HandleTable<B> {
    slots: SlotMap<DefaultKey, Slice<B>>,
    salt: u64,
}

/// Bits of a key that hold the slot's index and are not mixed.
const INDEX_BITS: u32 = 24;

/// Slots are counted from 1, so that the index of the last one fits.
const MAX_HANDLES: usize = (1 << INDEX_BITS) - 2;

/// The bit of a mixed key that is set in those of graphs and in no other.
const GRAPH_BIT: u64 = 1 << INDEX_BITS;

impl<B> Default for HandleTable<B> {
    fn default() -> Self {
        static TABLES: AtomicU64 = AtomicU64::new(1);
        let table = TABLES.fetch_add(1, Ordering::Relaxed);
        // An odd multiplier spreads consecutive numbers over the upper bits, all different (Fibonacci
        // hashing).
        let salt = table.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> INDEX_BITS << INDEX_BITS;
        Self { slots: SlotMap::new(), salt: salt & !GRAPH_BIT }
    }
}

impl<B> HandleTable<B> {
    /// A table whose handles are none of a table of memory.
    pub(crate) fn of_graphs() -> Self {
        let memory = Self::default();
        Self { salt: memory.salt | GRAPH_BIT, ..memory }
    }

    /// Gives a handle to `slice`.
    ///
    /// # Errors
    /// [`Limit`](BackendError::Limit) when 2²⁴ − 2 handles are live.
    pub fn insert(&mut self, op: &'static str, slice: Slice<B>) -> BackendResult<u64> {
        let (live, max) = (self.slots.len(), MAX_HANDLES);
        if live >= max {
            return Err(BackendError::Limit { op, what: "live handles", requested: live + 1, max });
        }
        Ok(encode_handle(self.slots.insert(slice).data().as_ffi() ^ self.salt))
    }

    /// What a handle names, if it is live.
    #[must_use]
    pub fn get(&self, ptr: u64) -> Option<&Slice<B>> {
        self.slots.get(self.key(ptr))
    }

    /// What the argument `arg` of `op` names.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle).
    pub fn lookup(&self, op: &'static str, arg: &'static str, ptr: u64) -> BackendResult<&Slice<B>> {
        self.get(ptr).ok_or(BackendError::InvalidHandle { op, arg, ptr })
    }

    /// Takes a handle back.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle).
    pub fn remove(&mut self, op: &'static str, arg: &'static str, ptr: u64) -> BackendResult<Slice<B>> {
        let key = self.key(ptr);
        self.slots.remove(key).ok_or(BackendError::InvalidHandle { op, arg, ptr })
    }

    /// Gives a handle to `byte_len` bytes of `ptr`'s memory from `byte_offset` on.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle), [`Overflow`](BackendError::Overflow),
    /// [`BufferTooSmall`](BackendError::BufferTooSmall).
    pub fn view(&mut self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        let op = "view";
        let slice = self.lookup(op, "ptr", ptr)?;
        let need = checked_add(op, "end of the view", byte_offset, byte_len)?;
        if need > slice.len {
            return Err(BackendError::BufferTooSmall { op, arg: "ptr", have: slice.len, need });
        }
        let view =
            Slice { block: Arc::clone(&slice.block), offset: slice.offset + byte_offset, len: byte_len };
        self.insert(op, view)
    }

    /// Number of live handles.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether no handle is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The key behind a handle; the null key for a number that no key has.
    fn key(&self, ptr: u64) -> DefaultKey {
        let value = decode_handle(ptr) ^ self.salt;
        let key = KeyData::from_ffi(value);
        // Every number makes a key, but not every number comes from one.
        if key.as_ffi() == value { key.into() } else { DefaultKey::null() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::ErrorKind;

    fn slice(len: usize) -> Slice<()> {
        Slice { block: Arc::new(()), offset: 0, len }
    }

    #[test]
    fn freed_unknown_and_foreign_handles_are_none() {
        let (mut table, mut other) = (HandleTable::default(), HandleTable::default());
        let ptr = table.insert("alloc", slice(8)).unwrap();
        let foreign = other.insert("alloc", slice(8)).unwrap();
        assert_ne!(ptr, 0);
        assert!(table.get(foreign).is_none(), "a handle of another table");
        assert!(table.get(0).is_none());
        table.remove("free", "ptr", ptr).unwrap();
        let again = table.insert("alloc", slice(8)).unwrap();
        assert_ne!(again, ptr, "the generation differs in a reused slot");
        assert_eq!(table.remove("free", "ptr", ptr).unwrap_err().kind(), ErrorKind::InvalidHandle);
    }

    #[test]
    fn a_handle_with_a_bit_changed_is_none() {
        let mut table = HandleTable::default();
        let ptr = table.insert("alloc", slice(8)).unwrap();
        for bit in 0..u64::BITS {
            let other = ptr ^ (1 << bit);
            assert!(table.get(other).is_none(), "bit {bit}");
            assert!(table.remove("free", "ptr", other).is_err(), "bit {bit}");
        }
        assert!(table.get(ptr).is_some());
    }

    /// Slots are reused, so that generations differ.
    #[test]
    fn a_handle_plus_an_offset_is_none() {
        const OFFSET: u64 = 1 << 20;
        let mut table = HandleTable::default();
        let mut live: Vec<u64> = (0..5000).map(|_| table.insert("alloc", slice(8)).unwrap()).collect();
        for round in 0..20 {
            for handle in live.iter_mut().skip(round).step_by(round + 2) {
                table.remove("free", "ptr", *handle).unwrap();
                *handle = table.insert("alloc", slice(8)).unwrap();
            }
        }
        // No live handle lies so near to another, up to the two ends, which are neighbours too.
        live.sort_unstable();
        let next = live.iter().skip(1).chain(live.first());
        for (&low, &high) in live.iter().zip(next) {
            assert!(high.wrapping_sub(low) > OFFSET, "{low:#x}, {high:#x}");
        }
        for offset in (1..=64).chain((64..=OFFSET).step_by(4093)) {
            for &handle in live.iter().step_by(250) {
                for near in [handle.wrapping_add(offset), handle.wrapping_sub(offset)] {
                    assert!(table.lookup("unary", "input", near).is_err(), "{handle:#x} ± {offset}");
                }
            }
        }
    }

    #[test]
    fn a_view_keeps_its_allocation_and_stays_inside() {
        let mut table = HandleTable::default();
        let ptr = table.insert("alloc", slice(16)).unwrap();
        let view = table.view(ptr, 4, 8).unwrap();
        let inner = table.view(view, 4, 4).unwrap();
        assert_eq!(table.view(view, 4, 5).unwrap_err().kind(), ErrorKind::BufferTooSmall);
        assert_eq!(table.view(view, usize::MAX, 2).unwrap_err().kind(), ErrorKind::Overflow);
        table.remove("free", "ptr", ptr).unwrap();
        let slice = table.get(inner).unwrap();
        assert_eq!((slice.offset, slice.len, Arc::strong_count(&slice.block)), (8, 4, 2));
    }

    #[test]
    fn graphs_and_memory_have_no_handle_in_common() {
        for _ in 0..3 {
            let (mut memory, mut graphs) = (HandleTable::default(), HandleTable::of_graphs());
            let memory = memory.insert("alloc", slice(8)).unwrap();
            let [graph, other] = [&mut graphs, &mut HandleTable::of_graphs()]
                .map(|table| table.insert("capture", slice(0)).unwrap());
            let bit = |handle| decode_handle(handle) & GRAPH_BIT;
            assert_eq!((bit(memory), bit(graph)), (0, GRAPH_BIT));
            assert_ne!(graph, other, "of another table");
        }
    }

    #[test]
    fn what_a_table_holds_is_counted() {
        let mut table = HandleTable::default();
        assert!(table.is_empty());
        let ptr = table.insert("alloc", slice(8)).unwrap();
        let view = table.view(ptr, 8, 0).unwrap();
        assert_eq!((table.len(), table.is_empty()), (2, false));
        let (whole, part) = (table.get(ptr).unwrap().region(), table.get(view).unwrap().clone().region());
        assert_eq!((whole.allocation, whole.offset, whole.len), (part.allocation, 0, 8));
        assert_eq!((part.offset, part.len), (8, 0));
        let other = table.insert("alloc", Slice { block: Arc::new(()), offset: 0, len: 8 }).unwrap();
        let place = |ptr| Arc::as_ptr(&table.get(ptr).unwrap().block) as usize as u64;
        assert_eq!(
            (whole.allocation, table.get(other).unwrap().region().allocation),
            (place(ptr), place(other))
        );
        assert!(table.lookup("t", "x", view).is_ok());
        let error = table.lookup("t", "x", 1).unwrap_err();
        assert_eq!(error, BackendError::InvalidHandle { op: "t", arg: "x", ptr: 1 });
    }

    #[test]
    fn handles_of_graphs_are_none_of_memory() {
        let mut pairs: Vec<_> = (0..200)
            .map(|_| (HandleTable::default(), crate::graphs::GraphTable::<()>::default()))
            .map(|(mut memory, mut graphs)| {
                let handles = (memory.insert("alloc", slice(8)).unwrap(), graphs.insert(()).unwrap());
                (memory, graphs, handles)
            })
            .collect();
        let handles: Vec<(u64, u64)> = pairs.iter().map(|&(_, _, handles)| handles).collect();
        for (memory, graphs, own) in &mut pairs {
            for &(ptr, graph) in &handles {
                assert!(memory.get(graph).is_none() && graphs.get("replay", ptr).is_err());
                assert_eq!(graphs.get("replay", graph).is_ok(), graph == own.1);
            }
            assert_eq!((graphs.len(), graphs.is_empty()), (1, false));
            graphs.remove("free_graph", own.1).unwrap();
            let error = graphs.remove("free_graph", own.1).unwrap_err();
            assert_eq!(error, BackendError::InvalidHandle { op: "free_graph", arg: "graph", ptr: own.1 });
            assert!(graphs.is_empty());
        }
    }

    #[test]
    fn tables_differ_in_the_bits_above_the_index() {
        assert_eq!(MAX_HANDLES, 16_777_214);
        let first = |_| HandleTable::default().insert("alloc", slice(8)).unwrap();
        let keys: Vec<u64> = (0..200).map(first).map(decode_handle).collect();
        assert!(keys.iter().all(|key| key & 0xff_ffff == 1), "the index of the first slot is 1");
        // Generations count from bit 32 on, so what lies below them must differ for most pairs of tables.
        let distinct = |bits: u64| keys.iter().map(|key| key & bits).collect::<HashSet<_>>().len();
        assert_eq!(distinct(u64::MAX), 200);
        assert!(distinct(0xff00_0000) > 50, "{}", distinct(0xff00_0000));
    }
}
