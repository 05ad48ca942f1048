//! Buffers kept for reuse, by size.

use std::sync::Arc;

use backend_api::{BackendError, BackendResult, MemoryStats};

use super::account::{Account, Use};
use super::block::{Block, Storage};
use crate::device::Progress;
use crate::device::guarded;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The smallest buffer.
const MIN_BYTES: usize = 256;
/// From here on sizes are rounded to a multiple of this only: a quarter of waste would be too much.
const LARGE_BYTES: usize = 64 << 20;
const LARGE_STEP: usize = 4 << 20;

/// The most buffers of one allocation.
const MAX_PARTS: usize = 256;

/// Allocates buffers in size classes and keeps the freed ones.
///
/// A buffer can be handed out again at once, even while the device still works on its last use: everything is
/// recorded into one queue, so the new use comes after the old one.
///
/// A buffer that is dropped stays in the device's memory until the batches that use it have finished and no
/// bind group names it. Its bytes count against the budget until then.
#[derive(Debug)]
pub(crate) struct Pool {
    device: wgpu::Device,
    max_bytes: usize,
    /// Bytes of the device's memory, where it tells.
    capacity: Option<u64>,
    progress: Arc<Progress>,
    state: Mutex<State>,
    /// Whether a buffer was dropped that a cached bind group may keep alive.
    has_dropped: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    account: Account<Arc<Storage>>,
    /// Dropped buffers that a batch or a bind group may still keep: the last batch that uses them, and their
    /// bytes.
    releasing: Vec<(u64, usize)>,
    budget: Option<usize>,
    refusals: Refusals,
}

/// Allocations that are refused as if the device had no memory, for tests.
#[derive(Clone, Copy, Debug, Default)]
struct Refusals {
    /// How many allocations succeed before one is refused.
    after: usize,
    /// How many attempts are refused then.
    count: usize,
}

impl Refusals {
    /// Whether the next attempt is refused.
    fn next(&mut self) -> bool {
        match self.after.checked_sub(1) {
            _ if self.count == 0 => false,
            Some(after) => {
                self.after = after;
                false
            }
            None => {
                self.count -= 1;
                true
            }
        }
    }
}

impl State {
    fn releasing(&self) -> usize {
        self.releasing.iter().map(|&(_, bytes)| bytes).sum()
    }

    /// Whether the budget has no room for `bytes` more.
    fn is_over(&self, bytes: usize) -> bool {
        let held = || self.account.in_use + self.account.pooled + self.releasing();
        self.budget.is_some_and(|budget| held().saturating_add(bytes) > budget)
    }
}

/// What came of asking the pool for a buffer.
#[derive(Debug)]
pub(crate) enum Allocation {
    Done(Arc<Block>),
    /// There is no room before memory comes back that batches and bind groups keep.
    NeedsReclaim(BackendError),
}

impl Pool {
    pub(crate) fn new(
        device: &wgpu::Device,
        capacity: Option<u64>,
        progress: &Arc<Progress>,
        has_dropped: &Arc<AtomicBool>,
    ) -> Self {
        Self {
            device: device.clone(),
            max_bytes: largest(&device.limits()),
            capacity,
            progress: Arc::clone(progress),
            state: Mutex::default(),
            has_dropped: Arc::clone(has_dropped),
        }
    }

    /// The bytes of each buffer but the last one of an allocation of `bytes`; `None` where it takes but one.
    ///
    /// # Errors
    /// [`Limit`](BackendError::Limit), and [`OutOfMemory`](BackendError::OutOfMemory) where the device hasn't so much
    /// memory, or what is in use leaves no room in the budget for several.
    pub(crate) fn division(&self, op: &'static str, bytes: usize) -> BackendResult<Option<usize>> {
        if bytes <= self.max_bytes {
            return Ok(None);
        }
        if bytes > self.max_alloc_bytes() {
            let (what, max) = ("bytes of one allocation", self.max_alloc_bytes());
            return Err(BackendError::Limit { op, what, requested: bytes, max });
        }
        let state = self.state.lock();
        let in_use = state.account.in_use;
        // A driver may begin to provide the first buffers before it finds that there is too little for all.
        let is_too_much = self.capacity.is_some_and(|capacity| bytes as u64 > capacity);
        if is_too_much || state.budget.is_some_and(|budget| in_use.saturating_add(bytes) > budget) {
            return Err(BackendError::OutOfMemory { requested: bytes, in_use });
        }
        Ok(Some(part_bytes(self.max_bytes)))
    }

    /// A buffer of at least `of.asked` bytes; its content is arbitrary. `is_last` unless the allocation takes more.
    ///
    /// # Errors
    /// [`Limit`](BackendError::Limit), and [`OutOfMemory`](BackendError::OutOfMemory) where what is in use
    /// leaves no room in the budget.
    pub(crate) fn alloc(
        self: &Arc<Self>,
        op: &'static str,
        of: Use,
        is_last: bool,
    ) -> BackendResult<Allocation> {
        let bytes = of.asked;
        let size = size_class(bytes, self.max_bytes).ok_or(BackendError::Limit {
            op,
            what: "bytes of one buffer",
            requested: bytes,
            max: self.max_bytes,
        })?;
        let mut state = self.state.lock();
        let out_of_memory = |in_use| BackendError::OutOfMemory { requested: size, in_use };
        if state.budget.is_some_and(|budget| state.account.in_use.saturating_add(size) > budget) {
            return Err(out_of_memory(state.account.in_use));
        }
        if state.refusals.next() {
            return Ok(Allocation::NeedsReclaim(out_of_memory(state.account.in_use)));
        }
        if let Some(storage) = state.account.reuse(size) {
            state.account.add(size, of);
            if is_last {
                state.account.settle_peak();
            }
            // A batch on its way may read what was there, and has to know then that it is spoiled.
            if storage.last_use() <= self.progress.finished() {
                storage.renew();
            }
            return Ok(self.done(storage, of));
        }
        self.release_superfluous(&mut state, size);
        if state.is_over(size) {
            self.trim_to(&mut state, size);
            if state.is_over(size) {
                return Ok(Allocation::NeedsReclaim(out_of_memory(state.account.in_use)));
            }
        }
        // Counted before it exists, so that threads can't pass the budget together.
        state.account.add(size, of);
        drop(state);
        let created = self.create(size);
        let mut state = self.state.lock();
        match created {
            Ok(buffer) => {
                if is_last {
                    state.account.settle_peak();
                }
                Ok(self.done(Arc::new(Storage::new(buffer)), of))
            }
            Err(error) => {
                tracing::debug!(%error, size, "the device has no memory for a buffer");
                state.account.remove(size, of);
                Ok(Allocation::NeedsReclaim(out_of_memory(state.account.in_use)))
            }
        }
    }

    fn done(self: &Arc<Self>, storage: Arc<Storage>, of: Use) -> Allocation {
        Allocation::Done(Arc::new(Block::pooled(storage, Arc::downgrade(self), of)))
    }

    /// Takes a buffer back; one that may be used elsewhere is not kept.
    pub(crate) fn recycle(&self, storage: Arc<Storage>, of: Use, reusable: bool) {
        let size = storage.size();
        let mut state = self.state.lock();
        state.account.remove(size, of);
        if !reusable || state.is_over(size) {
            self.release(&mut state, &storage);
            return;
        }
        state.account.keep(size, storage);
        self.release_superfluous(&mut state, 0);
    }

    /// Drops the buffers kept for reuse; how many bytes.
    pub(crate) fn trim(&self) -> usize {
        let mut state = self.state.lock();
        let bytes = state.account.pooled;
        self.trim_all(&mut state);
        bytes
    }

    /// From now on, after `after` attempts, refuses `count` of them as a device without memory would.
    #[cfg(any(test, feature = "test-hooks"))]
    pub(crate) fn refuse(&self, after: usize, count: usize) {
        self.state.lock().refusals = Refusals { after, count };
    }

    pub(crate) fn set_budget(&self, budget: Option<usize>) {
        let mut state = self.state.lock();
        state.budget = budget;
        if budget.is_some() {
            self.trim_all(&mut state);
        }
    }

    pub(crate) fn stats(&self) -> MemoryStats {
        let mut state = self.state.lock();
        self.settle(&mut state);
        let mut stats = MemoryStats::default();
        let account = &state.account;
        stats.in_use = account.in_use;
        stats.peak = account.peak;
        stats.asked = account.asked;
        stats.scratch = account.scratch;
        stats.pooled = account.pooled;
        stats.largest_free = account.largest_size().unwrap_or(0);
        stats.releasing = state.releasing();
        stats.budget = state.budget;
        stats
    }

    /// The most bytes that can be asked for.
    pub(crate) fn max_alloc_bytes(&self) -> usize {
        part_bytes(self.max_bytes).saturating_mul(MAX_PARTS).max(self.max_bytes)
    }

    /// The size of the largest buffer.
    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Makes room for `size` bytes of the budget, from the largest kept buffers on.
    fn trim_to(&self, state: &mut State, size: usize) {
        self.settle(state);
        while state.is_over(size)
            && let Some(storage) = state.account.largest()
        {
            self.release(state, &storage);
        }
    }

    /// Drops kept buffers that aren't worth their memory once `size` bytes more are in use.
    fn release_superfluous(&self, state: &mut State, size: usize) {
        while let Some(storage) = state.account.superfluous(size) {
            self.release(state, &storage);
        }
    }

    fn trim_all(&self, state: &mut State) {
        for storage in state.account.take_all() {
            self.release(state, &storage);
        }
    }

    /// Notes that a buffer is dropped by the pool.
    fn release(&self, state: &mut State, storage: &Arc<Storage>) {
        // Nothing keeps a buffer that no batch has used.
        if storage.last_use() == 0 {
            return;
        }
        self.has_dropped.store(true, Ordering::Release);
        // In a browser nothing can wait for a batch, so nothing is gained by counting.
        if !cfg!(target_family = "wasm") {
            state.releasing.push((storage.last_use(), storage.size()));
        }
    }

    /// Forgets dropped buffers whose last batch has finished, once no bind group names them.
    fn settle(&self, state: &mut State) {
        if self.has_dropped.load(Ordering::Acquire) {
            return;
        }
        let finished = self.progress.finished();
        state.releasing.retain(|&(batch, _)| batch > finished);
    }

    fn create(&self, size: usize) -> Result<wgpu::Buffer, wgpu::Error> {
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
    }
}

/// The largest buffer of whole words that the device allows.
fn largest(limits: &wgpu::Limits) -> usize {
    usize::try_from(limits.max_buffer_size).unwrap_or(usize::MAX) / 4 * 4
}

/// The size of each buffer but the last one of an allocation in several, where buffers of `max` bytes are possible: a
/// multiple of a large power of two, at which rows of usual lengths end too.
fn part_bytes(max: usize) -> usize {
    let step = (1 << max.max(MIN_BYTES).ilog2()) / 8;
    let step = step.max(MIN_BYTES);
    (max / step * step).max(step)
}

/// The size of the buffer for `bytes`: four steps to each doubling, so at most a quarter is unused. `None`
/// past `max`.
pub(super) fn size_class(bytes: usize, max: usize) -> Option<usize> {
    if bytes > max {
        return None;
    }
    if bytes <= MIN_BYTES {
        return Some(MIN_BYTES);
    }
    let step = if bytes >= LARGE_BYTES { LARGE_STEP } else { (1 << bytes.ilog2()) / 4 };
    // The device's largest buffer may lie between two classes.
    Some(bytes.checked_next_multiple_of(step).unwrap_or(max).min(max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;

    /// A pool, with what tells it which batches have finished.
    struct Rig {
        _backend: WebGpuBackend,
        pool: Arc<Pool>,
        progress: Arc<Progress>,
        has_dropped: Arc<AtomicBool>,
    }

    impl Rig {
        fn new() -> Self {
            Self::with(|_| ())
        }

        fn with(change: impl FnOnce(&mut Pool)) -> Self {
            let backend = WebGpuBackend::open().expect("a WebGPU adapter");
            let (progress, has_dropped) = (Arc::default(), Arc::default());
            let mut pool = Pool::new(backend.device().unwrap(), None, &progress, &has_dropped);
            change(&mut pool);
            Self { _backend: backend, pool: Arc::new(pool), progress, has_dropped }
        }

        fn alloc(&self, asked: usize) -> BackendResult<Allocation> {
            self.pool.alloc("test", Use { asked, is_scratch: false }, true)
        }

        fn block(&self, asked: usize) -> Arc<Block> {
            match self.alloc(asked) {
                Ok(Allocation::Done(block)) => block,
                other => panic!("{asked} bytes: {other:?}"),
            }
        }

        /// Bytes in use, kept for reuse, and waiting for batches.
        fn held(&self) -> [usize; 3] {
            let MemoryStats { in_use, pooled, releasing, .. } = self.pool.stats();
            [in_use, pooled, releasing]
        }
    }

    #[test]
    fn a_freed_buffer_is_handed_out_again() {
        let rig = Rig::new();
        let block = rig.block(1000);
        let id = block.id();
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        assert_eq!(block.buffer().usage(), usage);
        drop(block);
        let stats = rig.pool.stats();
        assert_eq!((stats.peak, stats.asked, stats.largest_free), (1024, 0, 1024));
        assert_eq!(rig.held(), [0, 1024, 0]);
        let again = rig.block(1010);
        assert_eq!((again.id(), rig.held(), rig.pool.stats().asked), (id, [1024, 0, 0], 1010));
        // The caller has it now.
        again.share();
        drop(again);
        assert_eq!(rig.held(), [0; 3]);
        assert_ne!(rig.block(1000).id(), id);
        assert_eq!([rig.pool.trim(), rig.pool.trim()], [1024, 0]);
        assert_eq!(rig.held(), [0; 3]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let rig = Rig::new();
        let blocks = [9 << 20, 10 << 20].map(|bytes| rig.block(bytes));
        drop(blocks);
        // Sixteen MiB beyond the 20 that were in use.
        drop(rig.block(14 << 20));
        assert_eq!(rig.held(), [0, 34 << 20, 0]);
        let larger = rig.block(16 << 20);
        assert_eq!(rig.held(), [16 << 20, 14 << 20, 0]);
        drop(larger);
    }

    #[test]
    fn the_peak_is_that_of_whole_allocations() {
        let rig = Rig::new();
        let of = Use { asked: 1024, is_scratch: true };
        let part = || rig.pool.alloc("test", of, false).unwrap();
        let blocks = [part(), part()];
        assert_eq!((rig.pool.stats().peak, rig.pool.stats().scratch), (0, 2048));
        drop(blocks);
        let again = part();
        assert_eq!((rig.pool.stats().peak, rig.held()), (0, [1024, 1024, 0]));
        let last = rig.block(1024);
        assert_eq!(rig.pool.stats().peak, 2048);
        drop((again, last));
        assert_eq!(rig.pool.stats().scratch, 0);
    }

    #[test]
    fn a_dropped_buffer_counts_until_its_batches_have_finished_and_no_bind_group_names_it() {
        let rig = Rig::new();
        drop(rig.block(1024));
        rig.pool.trim();
        assert!(!rig.has_dropped.load(Ordering::Relaxed), "no batch has used it");
        assert_eq!(rig.held(), [0; 3]);
        for batch in [2, 3] {
            let block = rig.block(1024);
            block.touch(batch);
            drop(block);
            rig.pool.trim();
            assert!(rig.has_dropped.load(Ordering::Relaxed));
            assert_eq!(rig.held(), [0, 0, 1024]);
            // Bind groups are forgotten.
            rig.has_dropped.store(false, Ordering::Relaxed);
            assert_eq!(rig.held(), [0, 0, 1024], "the batch is still at work");
            rig.progress.finish(batch);
            rig.has_dropped.store(true, Ordering::Relaxed);
            assert_eq!(rig.held(), [0, 0, 1024], "another bind group may name it");
            rig.has_dropped.store(false, Ordering::Relaxed);
            assert_eq!(rig.held(), [0; 3]);
        }
    }

    #[test]
    fn a_budget_counts_what_is_in_use_kept_and_waiting() {
        let rig = Rig::new();
        rig.pool.set_budget(Some(4096));
        let used = rig.block(2048);
        used.touch(1);
        drop(used);
        assert_eq!((rig.held(), rig.pool.stats().budget), ([0, 2048, 0], Some(4096)));
        let refused = rig.alloc(3072);
        assert!(matches!(
            refused,
            Ok(Allocation::NeedsReclaim(BackendError::OutOfMemory { requested: 3072, in_use: 0 }))
        ));
        assert_eq!(rig.held(), [0, 0, 2048]);
        rig.has_dropped.store(false, Ordering::Relaxed);
        rig.progress.finish(1);
        let blocks = [rig.block(3072), rig.block(1024)];
        let error = rig.alloc(256).unwrap_err();
        assert!(matches!(error, BackendError::OutOfMemory { requested: 256, in_use: 4096 }), "{error:?}");
        drop(blocks);
        assert_eq!(rig.held(), [0, 4096, 0]);
        // Kept buffers make room, the largest first.
        let small = rig.block(2048);
        assert_eq!(rig.held(), [2048, 1024, 0]);
        rig.pool.set_budget(Some(2048));
        assert_eq!(rig.held(), [2048, 0, 0]);
        rig.pool.set_budget(Some(1024));
        drop(small);
        assert_eq!(rig.held(), [0; 3], "what passes the budget isn't kept");
        drop(rig.block(1024));
        rig.pool.set_budget(None);
        assert_eq!(rig.held(), [0, 1024, 0]);
    }

    #[test]
    fn a_buffer_is_renewed_once_no_batch_uses_it() {
        let rig = Rig::new();
        let block = rig.block(1024);
        block.touch(5);
        block.storage().spoil(1);
        drop(block);
        rig.progress.finish(4);
        assert_eq!(rig.block(1024).storage().spoiled(), 1);
        rig.progress.finish(5);
        assert_eq!(rig.block(1024).storage().spoiled(), 0);
    }

    #[test]
    fn only_what_passes_the_largest_buffer_is_divided() {
        const MIB: usize = 1 << 20;
        let rig = Rig::with(|pool| (pool.max_bytes, pool.capacity) = (MIB, Some(8 << 20)));
        let division = |bytes| rig.pool.division("test", bytes);
        assert_eq!([MIB, MIB + 1, 8 * MIB].map(division), [Ok(None), Ok(Some(MIB)), Ok(Some(MIB))]);
        let full = |requested, in_use| Err(BackendError::OutOfMemory { requested, in_use });
        assert_eq!(division(8 * MIB + 1), full(8 * MIB + 1, 0), "more than the device has");
        let block = rig.block(MIB);
        rig.pool.set_budget(Some(4 * MIB));
        assert_eq!([3 * MIB, 3 * MIB + 1].map(division), [Ok(Some(MIB)), full(3 * MIB + 1, MIB)]);
        drop(block);
        let rig = Rig::with(|pool| pool.max_bytes = MIB);
        let most = MAX_PARTS * MIB;
        assert_eq!(rig.pool.max_alloc_bytes(), most);
        assert_eq!(rig.pool.division("test", most), Ok(Some(MIB)));
        let error = rig.pool.division("test", most + 1).unwrap_err();
        assert!(matches!(error, BackendError::Limit { max, .. } if max == most), "{error:?}");
    }

    #[test]
    fn attempts_are_refused_as_tests_ask() {
        let rig = Rig::new();
        rig.pool.refuse(1, 2);
        let refused = [(); 4].map(|()| matches!(rig.alloc(256), Ok(Allocation::NeedsReclaim(_))));
        assert_eq!(refused, [false, true, true, false]);
    }

    #[test]
    fn the_largest_buffer_has_whole_words() {
        let limit = |max_buffer_size| wgpu::Limits { max_buffer_size, ..wgpu::Limits::default() };
        assert_eq!([1027, 1028].map(|max| largest(&limit(max))), [1024, 1028]);
    }

    #[test]
    fn classes_waste_at_most_a_quarter() {
        for bytes in [1, 256, 257, 320, 321, 4095, 4096, 4097, (64 << 20) - 1, 64 << 20, (64 << 20) + 1] {
            let class = size_class(bytes, usize::MAX).unwrap();
            assert!(class >= bytes && class.is_multiple_of(4), "{bytes} -> {class}");
            assert!(bytes < MIN_BYTES || class - bytes <= bytes / 4, "{bytes} -> {class}");
            assert_eq!(size_class(class, usize::MAX), Some(class), "a class is its own class");
        }
    }

    #[test]
    fn parts_are_multiples_of_what_bindings_begin_at_and_nearly_as_large_as_buffers() {
        for max in [1 << 18, (1 << 28) + 4, (1 << 31) - 4, 1 << 31, (1 << 32) - (2 << 20), usize::MAX / 4 * 4]
        {
            let part = part_bytes(max);
            assert!(part <= max && max - part < max / 8 + 1 && part.is_multiple_of(256), "{max}: {part}");
            assert!(size_class(part, max).is_some(), "{max}: {part}");
        }
        assert_eq!([1 << 18, 1 << 31, (1 << 31) - 4].map(part_bytes), [1 << 18, 1 << 31, 15 << 27]);
    }

    #[test]
    fn the_largest_buffer_can_be_had() {
        let max = (1 << 31) - 4;
        assert_eq!(size_class(max, max), Some(max));
        assert_eq!(size_class(max - 5, max), Some(max));
        assert_eq!(size_class(max + 1, max), None);
    }
}
