//! Buffers that are kept, counted and given up, on a real device.

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
        let device = backend.guarded_device();
        let last = Arc::new(LastHandle::new(device));
        let mut pool = Pool::new(device, None, &progress, &has_dropped, &last);
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
fn the_largest_buffer_has_whole_vectors() {
    let limit = |max_buffer_size| wgpu::Limits { max_buffer_size, ..wgpu::Limits::default() };
    assert_eq!([1039, 1040, (1 << 31) - 1].map(|max| largest(&limit(max))), [1024, 1040, (1 << 31) - 16]);
    assert_eq!(Rig::with(|pool| pool.max_bytes = 1024).pool.max_bytes(), 1024);
}

#[test]
fn classes_are_whole_cache_lines_and_waste_at_most_a_quarter() {
    for bytes in [1, 256, 257, 320, 321, 4095, 4096, 4097, (64 << 20) - 1, 64 << 20, (64 << 20) + 1] {
        let class = size_class(bytes, usize::MAX).unwrap();
        assert!(class >= bytes && class.is_multiple_of(GRANULARITY), "{bytes} -> {class}");
        assert!(class - bytes <= (bytes / 4).max(GRANULARITY - 1), "{bytes} -> {class}");
        assert_eq!(size_class(class, usize::MAX), Some(class), "a class is its own class");
    }
}

#[test]
fn parts_are_multiples_of_what_bindings_begin_at_and_nearly_as_large_as_buffers() {
    for max in [1 << 18, (1 << 28) + 4, (1 << 31) - 4, 1 << 31, (1 << 32) - (2 << 20), usize::MAX / 4 * 4] {
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
