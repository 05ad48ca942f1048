//! Bytes to the device and back.

use backend_api::{ComputeBackend, DType};

use super::{Rig, Submits, Time, explore_each, join, pattern, read, spawn};
use crate::transfer::{Readback, StagingRing};

/// Each thread has memory of its own, and bytes for several staging and read-back buffers.
fn own_memory(submits: Submits) {
    let rig = Rig::new(submits);
    join((0..3).map(|of| {
        spawn(&rig, move |rig| {
            for (round, len) in [100, 36].into_iter().enumerate() {
                let bytes = pattern(of * 2 + round, len);
                let ptr = rig.alloc(len).unwrap();
                rig.copy_htod(ptr, &bytes).unwrap();
                assert_eq!(read(rig, ptr, len).unwrap(), bytes, "thread {of}, round {round}");
                rig.free(ptr).unwrap();
            }
        })
    }));
    assert_eq!(rig.memory_stats().in_use, 0);
}

#[test]
fn each_thread_reads_what_it_wrote() {
    explore_each("own memory", Time::Stands, own_memory);
}

/// Threads write their parts of one allocation, with kernels between, and read it all when they have
/// finished.
fn parts_of_one(submits: Submits) {
    let rig = Rig::new(submits);
    let (ptr, other) = (rig.alloc(192).unwrap(), rig.alloc(192).unwrap());
    join((0..3).map(|of| {
        spawn(&rig, move |rig| {
            let part = rig.view(ptr, of * 64, 64).unwrap();
            rig.copy_htod(part, &pattern(9, 64)).unwrap();
            rig.fill(other, DType::F32, 8, 1.0).unwrap();
            rig.copy_htod(part, &pattern(of, 64)).unwrap();
            rig.free(part).unwrap();
        })
    }));
    let expected = [0, 1, 2].map(|of| pattern(of, 64)).concat();
    join((0..2).map(|_| {
        let expected = expected.clone();
        spawn(&rig, move |rig| assert_eq!(read(rig, ptr, 192).unwrap(), expected))
    }));
}

#[test]
fn parts_written_by_threads_are_read_by_all() {
    explore_each("parts of one", Time::Stands, parts_of_one);
}

/// Uploads of more than the ring holds; the ring stays as large as it may be, and all of it comes back.
fn ring(submits: Submits) {
    const LEN: usize = StagingRing::CHUNK * 4 + 8;
    let rig = Rig::new(submits);
    let ptrs = [(); 2].map(|()| rig.alloc(LEN).unwrap());
    let is_bounded = |rig: &Rig| {
        let most = StagingRing::CHUNK * 3 + Readback::CHUNK * 2;
        assert!(rig.memory_stats().staging <= most, "{:?}", rig.memory_stats());
    };
    join((0..2).map(|of| {
        spawn(&rig, move |rig| {
            rig.copy_htod(ptrs[of], &pattern(of, LEN)).unwrap();
            is_bounded(rig);
        })
    }));
    rig.copy_htod(ptrs[0], &pattern(7, LEN)).unwrap();
    assert_eq!(read(&rig, ptrs[0], LEN).unwrap(), pattern(7, LEN));
    assert_eq!(read(&rig, ptrs[1], LEN).unwrap(), pattern(1, LEN));
    is_bounded(&rig);
}

#[test]
fn the_ring_is_bounded_and_comes_back() {
    explore_each("ring", Time::Stands, ring);
}

/// One thread reads without blocking while another blocks.
fn both_ways(submits: Submits) {
    let (rig, ptr) = Rig::holding(submits, 80);
    let awaits = spawn(&rig, move |rig| {
        let mut bytes = vec![0; 80];
        pollster::block_on(rig.copy_dtoh_async(&mut bytes, ptr)).unwrap();
        assert_eq!(bytes, pattern(1, 80));
        pollster::block_on(rig.synchronize_async()).unwrap();
    });
    let blocks = spawn(&rig, move |rig| {
        assert_eq!(read(rig, ptr, 80).unwrap(), pattern(1, 80));
        rig.synchronize().unwrap();
    });
    join([awaits, blocks]);
}

#[test]
fn reads_block_and_are_awaited() {
    explore_each("both ways", Time::Stands, both_ways);
}
