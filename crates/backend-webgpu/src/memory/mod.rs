//! Device memory: allocations, the handles to them, and the pool that keeps what was freed.

mod block;
mod pool;

use std::sync::Arc;

use backend_api::handles::{HandleTable, Slice};
use backend_api::operand::{self, Operand};
use backend_api::{BackendError, BackendResult, MemoryStats};
use parking_lot::Mutex;

pub(crate) use block::{Block, BufferId};
pub(crate) use pool::Pool;

/// A part of device memory, as an operand names it.
pub(crate) type DeviceSlice = Slice<Block>;

/// The allocations of one opened device.
#[derive(Debug)]
pub(crate) struct Memory {
    handles: Mutex<HandleTable<Block>>,
    pool: Arc<Pool>,
}

impl Memory {
    pub(crate) fn new(device: &wgpu::Device) -> Self {
        Self { handles: Mutex::default(), pool: Arc::new(Pool::new(device)) }
    }

    pub(crate) fn alloc(&self, bytes: usize) -> BackendResult<u64> {
        let block = self.pool.alloc("alloc", bytes)?;
        self.handles.lock().insert("alloc", Slice { block, offset: 0, len: bytes })
    }

    /// Gives a handle to a buffer that someone else made.
    pub(crate) fn import(&self, op: &'static str, buffer: wgpu::Buffer) -> BackendResult<u64> {
        let len =
            usize::try_from(buffer.size()).map_err(|_| BackendError::Overflow { op, what: "buffer size" })?;
        let block = Arc::new(Block::foreign(buffer));
        self.handles.lock().insert(op, Slice { block, offset: 0, len })
    }

    pub(crate) fn free(&self, ptr: u64) -> BackendResult<()> {
        // Bound first, so that the block's drop runs after the lock is released.
        let slice = self.handles.lock().remove("free", "ptr", ptr)?;
        drop(slice);
        Ok(())
    }

    pub(crate) fn view(&self, ptr: u64, byte_offset: usize, byte_len: usize) -> BackendResult<u64> {
        self.handles.lock().view(ptr, byte_offset, byte_len)
    }

    pub(crate) fn lookup(&self, op: &'static str, arg: &'static str, ptr: u64) -> BackendResult<DeviceSlice> {
        self.handles.lock().lookup(op, arg, ptr).cloned()
    }

    /// Memory for one operation's own use, given back when the slice is dropped.
    pub(crate) fn scratch(&self, op: &'static str, bytes: usize) -> BackendResult<DeviceSlice> {
        Ok(Slice { block: self.pool.alloc(op, bytes)?, offset: 0, len: bytes })
    }

    /// Checks the operands of a call and returns their memory; `None` for one that touches nothing.
    pub(crate) fn resolve<const N: usize>(
        &self,
        op: &'static str,
        operands: &[Operand; N],
    ) -> BackendResult<[Option<DeviceSlice>; N]> {
        let handles = self.handles.lock();
        operand::check(op, operands, |ptr| handles.get(ptr).map(Slice::region))?;
        Ok(std::array::from_fn(|i| {
            let operand = &operands[i];
            let slice = handles.get(operand.ptr).filter(|_| operand.bytes > 0)?;
            Some(Slice { len: operand.bytes, ..slice.clone() })
        }))
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        let mut stats = self.pool.stats();
        stats.handles = self.handles.lock().len();
        stats
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}
