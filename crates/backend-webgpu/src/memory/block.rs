//! One allocation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::Pool;

/// Identifies a wgpu buffer for as long as the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BufferId(u64);

/// A buffer with what the recorder has to know of it. It outlives the allocations that reuse it.
#[derive(Debug)]
pub(crate) struct Storage {
    buffer: wgpu::Buffer,
    id: BufferId,
    /// The last batch of the recorder that uses it.
    last_batch: AtomicU64,
}

impl Storage {
    pub(crate) fn new(buffer: wgpu::Buffer) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = BufferId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self { buffer, id, last_batch: AtomicU64::new(0) }
    }

    /// Bytes of the buffer; it was allocated within `usize`.
    pub(crate) fn size(&self) -> usize {
        self.buffer.size() as usize
    }
}

/// One allocation: its buffer goes back to the pool when the last handle and the last recorded use are gone.
#[derive(Debug)]
pub(crate) struct Block {
    storage: Arc<Storage>,
    pool: Weak<Pool>,
}

impl Block {
    pub(crate) fn pooled(storage: Arc<Storage>, pool: Weak<Pool>) -> Self {
        Self { storage, pool }
    }

    /// A buffer that is not the pool's.
    pub(crate) fn foreign(buffer: wgpu::Buffer) -> Self {
        Self { storage: Arc::new(Storage::new(buffer)), pool: Weak::new() }
    }

    pub(crate) fn id(&self) -> BufferId {
        self.storage.id
    }

    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.storage.buffer
    }

    pub(crate) fn size(&self) -> usize {
        self.storage.size()
    }

    /// Notes that `batch` uses the buffer.
    pub(crate) fn touch(&self, batch: u64) {
        self.storage.last_batch.store(batch, Ordering::Relaxed);
    }

    /// Whether `batch` uses the buffer.
    pub(crate) fn is_touched_by(&self, batch: u64) -> bool {
        self.storage.last_batch.load(Ordering::Relaxed) == batch
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            pool.recycle(Arc::clone(&self.storage));
        }
    }
}
