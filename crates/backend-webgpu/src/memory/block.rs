//! One allocation.

use std::sync::{Arc, Weak};

use super::{Pool, Use};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Identifies a wgpu buffer for as long as the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct BufferId(u64);

/// A buffer with what the recorder has to know of it. It outlives the allocations that reuse it.
#[derive(Debug)]
pub(crate) struct Storage {
    buffer: wgpu::Buffer,
    id: BufferId,
    /// The last batch of the recorder whose kernels use it.
    last_batch: AtomicU64,
    /// The last batch that writes it, by a kernel or an upload.
    last_write: AtomicU64,
    /// The late error that may have spoiled its content, by its number in `Health`; 0 for none.
    spoiled: AtomicU64,
    /// Whether the caller has the buffer itself, by export or import.
    shared: AtomicBool,
}

impl Storage {
    pub(crate) fn new(buffer: wgpu::Buffer) -> Self {
        // Not of `sync`: tests that run beside each other share it.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        let id = BufferId(NEXT.fetch_add(1, Ordering::Relaxed));
        Self {
            buffer,
            id,
            last_batch: AtomicU64::new(0),
            last_write: AtomicU64::new(0),
            spoiled: AtomicU64::new(0),
            shared: AtomicBool::new(false),
        }
    }

    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Bytes of the buffer; it was allocated within `usize`.
    pub(crate) fn size(&self) -> usize {
        self.buffer.size() as usize
    }

    /// The last batch that uses it.
    pub(crate) fn last_use(&self) -> u64 {
        self.last_batch.load(Ordering::Relaxed).max(self.last_write.load(Ordering::Relaxed))
    }

    /// Notes that `batch` writes the buffer; whether it had not before.
    pub(crate) fn write(&self, batch: u64) -> bool {
        self.last_write.swap(batch, Ordering::Relaxed) != batch
    }

    /// Notes that the late error of this number may have kept the content from being written.
    pub(crate) fn spoil(&self, error: u64) {
        self.spoiled.fetch_max(error, Ordering::Relaxed);
    }

    pub(crate) fn spoiled(&self) -> u64 {
        self.spoiled.load(Ordering::Relaxed)
    }

    /// Forgets the content, for the next allocation.
    pub(crate) fn renew(&self) {
        self.spoiled.store(0, Ordering::Relaxed);
    }
}

/// One allocation: its buffer goes back to the pool when the last handle and the last recorded use are gone.
#[derive(Debug)]
pub(crate) struct Block {
    storage: Arc<Storage>,
    pool: Weak<Pool>,
    of: Use,
}

impl Block {
    pub(crate) fn pooled(storage: Arc<Storage>, pool: Weak<Pool>, of: Use) -> Self {
        Self { storage, pool, of }
    }

    /// A buffer that is not the pool's.
    pub(crate) fn foreign(buffer: wgpu::Buffer) -> Self {
        Self::outside(Arc::new(Storage::new(buffer)))
    }

    /// A buffer that doesn't go back to a pool.
    pub(crate) fn outside(storage: Arc<Storage>) -> Self {
        Self { storage, pool: Weak::new(), of: Use { asked: 0, is_scratch: false } }
    }

    pub(crate) fn id(&self) -> BufferId {
        self.storage.id
    }

    pub(crate) fn buffer(&self) -> &wgpu::Buffer {
        self.storage.buffer()
    }

    pub(crate) fn size(&self) -> usize {
        self.storage.size()
    }

    pub(crate) fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Notes that kernels of `batch` use the buffer.
    pub(crate) fn touch(&self, batch: u64) {
        self.storage.last_batch.store(batch, Ordering::Relaxed);
    }

    /// Whether kernels of `batch` use the buffer.
    pub(crate) fn is_touched_by(&self, batch: u64) -> bool {
        self.storage.last_batch.load(Ordering::Relaxed) == batch
    }

    /// Keeps the buffer out of the pool for good: the caller may use or destroy it at any time.
    pub(crate) fn share(&self) {
        self.storage.shared.store(true, Ordering::Relaxed);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.upgrade() {
            let storage = Arc::clone(&self.storage);
            pool.recycle(storage, self.of, !self.storage.shared.load(Ordering::Relaxed));
        }
    }
}
