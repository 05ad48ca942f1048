//! Scratch memory of one call, which the parts of the call share.

use std::sync::Arc;

use crate::memory::{Block, DeviceSlice};
use crate::sync::Mutex;

/// What a call has taken. All of it is the call's until its launches are recorded, as they are recorded together; but a
/// part may write where an earlier part is done, as the device does them in order.
#[derive(Debug, Default)]
pub(super) struct Scratch(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    /// In the order in which it was taken.
    taken: Vec<Arc<Block>>,
    /// What only parts use that are complete.
    free: Vec<Arc<Block>>,
}

impl Scratch {
    /// Memory of an earlier part.
    pub(super) fn reuse(&self, bytes: usize) -> Option<DeviceSlice> {
        let mut lists = self.0.lock();
        let block = take_fitting(&mut lists.free, bytes)?;
        lists.taken.push(Arc::clone(&block));
        Some(DeviceSlice { block, offset: 0, len: bytes })
    }

    /// Notes memory that is new to the call.
    pub(super) fn note(&self, slice: &DeviceSlice) {
        self.0.lock().taken.push(Arc::clone(&slice.block));
    }

    /// Begins a part, whose memory is free for others when this is dropped.
    pub(super) fn begin_part(&self) -> Part<'_> {
        Part { scratch: self, first: self.0.lock().taken.len() }
    }

    /// Forgets everything: the launches are recorded, or won't be.
    pub(super) fn clear(&self) {
        *self.0.lock() = Lists::default();
    }
}

/// A part of a call that is being planned. Parts of a part are dropped before it.
#[derive(Debug)]
#[must_use]
pub(in crate::ops) struct Part<'a> {
    scratch: &'a Scratch,
    /// Where its memory begins among what was taken.
    first: usize,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let Lists { taken, free } = &mut *self.scratch.0.lock();
        free.extend(taken.drain(self.first.min(taken.len())..));
    }
}

/// Bytes below which a block may be far larger than what is needed.
const SMALL: usize = 2048;

/// Takes out the smallest block that has so many bytes, and not far more.
pub(super) fn take_fitting(free: &mut Vec<Arc<Block>>, bytes: usize) -> Option<Arc<Block>> {
    let fits = |block: &Block| (bytes..=2 * bytes.max(SMALL)).contains(&block.size());
    let smallest = (0..free.len()).filter(|&i| fits(&free[i])).min_by_key(|&i| free[i].size());
    smallest.map(|i| free.swap_remove(i))
}

#[cfg(test)]
mod tests {
    use backend_api::desc::{SampleDesc, TopKDesc};
    use backend_api::{BackendResult, ComputeBackend, DType};

    use crate::WebGpuBackend;

    const ROWS: usize = 64;
    const COLUMNS: usize = 4096;

    /// Bytes that a graph of the call holds where it is in `1 << halvings` parts.
    fn scratch(
        backend: &WebGpuBackend,
        halvings: u32,
        call: impl Fn(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> usize {
        backend.pretend(1.0, halvings).unwrap();
        let before = backend.memory_stats().scratch;
        let graph = backend.capture(&mut |recorded| call(recorded)).unwrap();
        let held = backend.memory_stats().scratch - before;
        backend.free_graph(graph).unwrap();
        held
    }

    #[test]
    fn parts_of_a_call_share_its_scratch_memory() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let x = backend.alloc(ROWS * COLUMNS * 4).unwrap();
        let y = backend.alloc(ROWS * COLUMNS * 4).unwrap();
        let sort = |b: &dyn ComputeBackend| b.top_k(&TopKDesc::new(DType::F32, x, y, ROWS, COLUMNS, COLUMNS));
        let draw = |b: &dyn ComputeBackend| b.sample(&SampleDesc::new(DType::F32, x, y, ROWS, COLUMNS, 7));
        let [sorts, draws] = [
            [0, 3].map(|halvings| scratch(&backend, halvings, sort)),
            [0, 3].map(|halvings| scratch(&backend, halvings, draw)),
        ];
        for [whole, in_parts] in [sorts, draws] {
            assert!(whole >= ROWS * COLUMNS * 4, "{whole}");
            assert!(in_parts <= whole / 6, "eight parts have {in_parts} bytes, the whole has {whole}");
        }
        // Entries of 8 bytes in two places, one of which is read while the other is written.
        assert!(sorts[0] <= 2 * ROWS * COLUMNS * 8, "{sorts:?}");

        // Of a call that is recorded, too, and nothing is left when it is.
        backend.pretend(1.0, 3).unwrap();
        let before = backend.memory_stats().scratch;
        let call = backend.context("test").unwrap();
        let desc = TopKDesc::new(DType::F32, x, y, ROWS, COLUMNS, COLUMNS);
        super::super::top_k::top_k(&call.context, "top_k", &desc).unwrap();
        let held = backend.memory_stats().scratch - before;
        assert!(held <= sorts[0] / 6, "eight parts have {held} bytes, the whole has {}", sorts[0]);
        call.context.commit("top_k").unwrap();
        assert_eq!(backend.memory_stats().scratch, before);
    }
}
