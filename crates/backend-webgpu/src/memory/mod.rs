//! Device memory: allocations, the handles to them, and the pool that keeps what was freed.

mod account;
mod block;
mod pool;
mod shared;

use std::sync::Arc;

use backend_api::support::{self, HandleTable, Operand, Slice};
use backend_api::{BackendError, BackendResult, MemoryStats};

pub(crate) use account::Use;
pub(crate) use block::{Block, BufferId, Piece, Storage, are_cut};
pub(crate) use pool::{Allocation, Pool, VECTOR_BYTES, buffer_outside};
#[cfg(test)]
pub(crate) use pool::{GRANULARITY, Refusals};
use shared::SharedBuffers;

use crate::sync::Mutex;

/// A part of device memory, as an operand names it.
pub(crate) type DeviceSlice = Slice<Block>;

/// The allocations of one opened device.
#[derive(Debug)]
pub(crate) struct Memory {
    handles: Mutex<HandleTable<Block>>,
    shared: Mutex<SharedBuffers>,
    pool: Arc<Pool>,
}

impl Memory {
    pub(crate) fn new(pool: Pool) -> Self {
        Self { handles: Mutex::default(), shared: Mutex::default(), pool: Arc::new(pool) }
    }

    /// Gives a handle to the first `bytes` of a block.
    pub(crate) fn insert(&self, op: &'static str, block: Arc<Block>, bytes: usize) -> BackendResult<u64> {
        self.handles.lock().insert(op, Slice { block, offset: 0, len: bytes })
    }

    /// Gives a handle to all of a buffer that the caller has. A buffer that is known is the memory that it
    /// was.
    pub(crate) fn import(&self, op: &'static str, buffer: wgpu::Buffer) -> BackendResult<u64> {
        let len =
            usize::try_from(buffer.size()).map_err(|_| BackendError::Overflow { op, what: "buffer size" })?;
        let block = self.shared.lock().import(buffer);
        self.insert(op, block, len)
    }

    /// What a handle names, whose buffer the caller gets.
    pub(crate) fn export(&self, op: &'static str, arg: &'static str, ptr: u64) -> BackendResult<DeviceSlice> {
        let slice = self.handles.lock().lookup(op, arg, ptr).cloned()?;
        if slice.block.is_divided() {
            let (requested, max) = (slice.block.size(), self.pool.max_bytes());
            return Err(BackendError::Limit { op, what: "bytes of an exported buffer", requested, max });
        }
        self.shared.lock().export(&slice.block);
        Ok(slice)
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

    /// Checks the operands of a call and returns their memory; `None` for one that touches nothing.
    pub(crate) fn resolve<const N: usize>(
        &self,
        op: &'static str,
        operands: &[Operand; N],
    ) -> BackendResult<[Option<DeviceSlice>; N]> {
        let handles = self.handles.lock();
        support::check(op, operands, |ptr| handles.get(ptr).map(Slice::region))?;
        Ok(std::array::from_fn(|i| {
            let operand = &operands[i];
            let slice = handles.get(operand.ptr).filter(|_| operand.bytes > 0)?;
            Some(Slice { offset: slice.offset + operand.offset, len: operand.bytes, ..slice.clone() })
        }))
    }

    /// What a handle names.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn lookup(&self, op: &'static str, arg: &'static str, ptr: u64) -> BackendResult<DeviceSlice> {
        self.handles.lock().lookup(op, arg, ptr).cloned()
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

#[cfg(test)]
mod tests {
    use backend_api::DType;
    use backend_api::support::Access;

    use super::*;
    use crate::WebGpuBackend;
    use crate::device::LastHandle;

    #[test]
    fn buffers_of_the_backend_leave_those_of_tensors_at_whole_cache_lines() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let device = backend.opened().unwrap().device();
        for window in [device.null(), device.sink(), device.fixup().unwrap()] {
            assert!(window.block.buffer().size().is_multiple_of(GRANULARITY as u64));
        }
    }

    /// Operations that bind them follow a batch that was refused, and have nothing of what it should have written.
    #[test]
    fn late_errors_spoil_no_buffer_of_the_backend() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let device = backend.opened().unwrap().device();
        for window in [device.null(), device.sink(), device.fixup().unwrap()] {
            window.block.storage().spoil(1);
            assert_eq!(window.block.storage().spoiled(), 0);
        }
    }

    #[test]
    fn an_operand_of_a_view_begins_where_both_say() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let usage = wgpu::BufferUsages::STORAGE;
        let descriptor = wgpu::BufferDescriptor { label: None, size: 1024, usage, mapped_at_creation: false };
        let buffer = backend.device().unwrap().create_buffer(&descriptor);
        let device = backend.guarded_device();
        let pool =
            Pool::new(device, None, &Arc::default(), &Arc::default(), &Arc::new(LastHandle::new(device)));
        let memory = Memory::new(pool);
        let whole = memory.import("test", buffer.clone()).unwrap();
        let view = memory.view(whole, 256, 512).unwrap();
        assert!(whole != view && memory.stats().handles == 2);
        let operand = |elements| Operand::new("test", "x", view, DType::F32, elements, Access::Read).unwrap();
        let mut some = operand(10);
        some.offset = 64;
        let [Some(slice), None] = memory.resolve("test", &[some, operand(0)]).unwrap() else {
            panic!("the second one touches nothing")
        };
        assert_eq!((slice.offset, slice.len, slice.block.buffer()), (256 + 64, 40, &buffer));
        let exported = memory.export("test", "x", view).unwrap();
        assert_eq!((exported.offset, exported.len), (256, 512));
        memory.free(view).unwrap();
        assert!(memory.free(view).is_err() && memory.lookup("test", "x", whole).is_ok());
        assert_eq!(memory.stats().handles, 1);
    }
}
