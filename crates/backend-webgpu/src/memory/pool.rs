//! Buffers kept for reuse, by size.

use std::collections::BTreeMap;
use std::sync::Arc;

use backend_api::{BackendError, BackendResult, MemoryStats};
use parking_lot::Mutex;

use super::block::{Block, Storage};
use crate::device::guarded;

/// The smallest buffer.
const MIN_BYTES: usize = 256;
/// From here on sizes are rounded to a multiple of this only: a quarter of waste would be too much.
const LARGE_BYTES: usize = 64 << 20;
const LARGE_STEP: usize = 4 << 20;

/// Allocates buffers in size classes and keeps the freed ones.
///
/// A buffer can be handed out again at once, even while the device still works on its last use: everything is
/// recorded into one queue, so the new use comes after the old one.
#[derive(Debug)]
pub(crate) struct Pool {
    device: wgpu::Device,
    max_bytes: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: BTreeMap<usize, Vec<Arc<Storage>>>,
    in_use: usize,
    peak: usize,
    pooled: usize,
    budget: Option<usize>,
}

impl Pool {
    pub(crate) fn new(device: &wgpu::Device) -> Self {
        let max_bytes = usize::try_from(device.limits().max_buffer_size).unwrap_or(usize::MAX);
        Self { device: device.clone(), max_bytes, state: Mutex::default() }
    }

    /// A buffer of at least `bytes`; its content is arbitrary.
    pub(crate) fn alloc(self: &Arc<Self>, op: &'static str, bytes: usize) -> BackendResult<Arc<Block>> {
        let size = size_class(bytes).filter(|&size| size <= self.max_bytes).ok_or(BackendError::Limit {
            op,
            what: "bytes of one allocation",
            requested: bytes,
            max: self.max_bytes,
        })?;
        let storage = match self.reuse(size)? {
            Some(storage) => storage,
            None => self.create(size)?,
        };
        let mut state = self.state.lock();
        state.in_use += size;
        state.peak = state.peak.max(state.in_use);
        drop(state);
        Ok(Arc::new(Block::pooled(storage, Arc::downgrade(self))))
    }

    /// Takes a buffer back.
    pub(crate) fn recycle(&self, storage: Arc<Storage>) {
        let size = storage.size();
        let mut state = self.state.lock();
        state.in_use -= size;
        if state.budget.is_some_and(|budget| state.in_use + state.pooled + size > budget) {
            return;
        }
        state.pooled += size;
        state.free.entry(size).or_default().push(storage);
    }

    /// Drops the buffers kept for reuse; how many bytes.
    pub(crate) fn trim(&self) -> usize {
        let mut state = self.state.lock();
        let free = std::mem::take(&mut state.free);
        let bytes = std::mem::take(&mut state.pooled);
        drop(state);
        drop(free);
        bytes
    }

    pub(crate) fn set_budget(&self, budget: Option<usize>) {
        self.state.lock().budget = budget;
        if budget.is_some() {
            self.trim();
        }
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        let state = self.state.lock();
        let mut stats = MemoryStats::default();
        stats.in_use = state.in_use;
        stats.peak = state.peak;
        stats.pooled = state.pooled;
        stats.budget = state.budget;
        stats
    }

    /// A kept buffer of this size, after checking that the budget has room for one.
    fn reuse(&self, size: usize) -> BackendResult<Option<Arc<Storage>>> {
        let mut state = self.state.lock();
        let in_use = state.in_use;
        if state.budget.is_some_and(|budget| in_use.saturating_add(size) > budget) {
            return Err(BackendError::OutOfMemory { requested: size, in_use });
        }
        let found = state.free.get_mut(&size).and_then(Vec::pop);
        if found.is_some() {
            state.pooled -= size;
        }
        let over_budget = state.budget.is_some_and(|budget| in_use + state.pooled + size > budget);
        drop(state);
        if over_budget {
            self.trim();
        }
        Ok(found)
    }

    /// A new buffer; if the device has no memory, one more try without what is kept for reuse.
    fn create(&self, size: usize) -> BackendResult<Arc<Storage>> {
        let create = || {
            guarded(&self.device, || {
                self.device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some("tensor"),
                    size: size as u64,
                    usage: wgpu::BufferUsages::STORAGE
                        | wgpu::BufferUsages::COPY_SRC
                        | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                })
            })
        };
        let out_of_memory =
            || BackendError::OutOfMemory { requested: size, in_use: self.state.lock().in_use };
        match create() {
            Ok(buffer) => Ok(Arc::new(Storage::new(buffer))),
            Err(error) => {
                tracing::debug!(%error, size, "allocation failed, trimming the pool");
                if self.trim() == 0 {
                    return Err(out_of_memory());
                }
                // Dropped buffers are given back when the device is polled.
                _ = self.device.poll(wgpu::PollType::wait_indefinitely());
                create().map(|buffer| Arc::new(Storage::new(buffer))).map_err(|_| out_of_memory())
            }
        }
    }
}

/// The size of the buffer for `bytes`: four steps to each doubling, so at most a quarter is unused.
fn size_class(bytes: usize) -> Option<usize> {
    if bytes <= MIN_BYTES {
        return Some(MIN_BYTES);
    }
    let step = if bytes >= LARGE_BYTES { LARGE_STEP } else { (1 << bytes.ilog2()) / 4 };
    bytes.checked_next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_a_quarter() {
        for bytes in [1, 256, 257, 320, 321, 4095, 4096, 4097, (64 << 20) - 1, 64 << 20, (64 << 20) + 1] {
            let class = size_class(bytes).unwrap();
            assert!(class >= bytes && class.is_multiple_of(4), "{bytes} -> {class}");
            assert!(bytes < MIN_BYTES || class - bytes <= bytes / 4, "{bytes} -> {class}");
            assert_eq!(size_class(class), Some(class), "a class is its own class");
        }
        assert_eq!(size_class(usize::MAX), None);
    }
}
