//! Handles, the pool and its budget.

use std::sync::Arc;

use backend_api::{ComputeBackend, DType, ErrorKind};

use super::{Rig, Submits, Time, explore_each, join, pattern, read, spawn};
use crate::sync::atomic::{AtomicUsize, Ordering};

/// What is held is within the budget at all times, and whoever asks for no more than his share gets it.
fn shares(submits: Submits) {
    const SHARE: usize = 512;
    const BUDGET: usize = 3 * SHARE;
    let rig = Rig::new(submits);
    rig.set_memory_budget(Some(BUDGET)).unwrap();
    join((0..3).map(|of| {
        spawn(&rig, move |rig| {
            for (round, len) in [SHARE, 300, 200].into_iter().enumerate() {
                let ptr = rig.alloc(len).unwrap();
                let bytes = pattern(of * 3 + round, 20);
                rig.copy_htod(ptr, &bytes).unwrap();
                if (of + round) % 3 == 0 {
                    assert_eq!(read(rig, ptr, 20).unwrap(), bytes);
                }
                let stats = rig.memory_stats();
                assert!(stats.in_use + stats.pooled + stats.releasing <= BUDGET, "{stats:?}");
                rig.free(ptr).unwrap();
            }
        })
    }));
    let stats = rig.memory_stats();
    assert_eq!((stats.in_use, stats.handles), (0, 0), "{stats:?}");
    assert!(stats.peak <= BUDGET, "{stats:?}");
    let all = rig.alloc(BUDGET).unwrap();
    rig.free(all).unwrap();
    rig.assert_gives_all_back();
}

#[test]
fn the_budget_holds_and_shares_are_there() {
    explore_each("shares", Time::Stands, shares);
}

/// More is asked for than there is: `OutOfMemory` or memory, and never more than the budget.
fn too_much(submits: Submits) {
    const BUDGET: usize = 1024;
    let rig = Rig::new(submits);
    rig.set_memory_budget(Some(BUDGET)).unwrap();
    join((0..3).map(|of| {
        spawn(&rig, move |rig| {
            for len in [512, 256] {
                match rig.alloc(len) {
                    Ok(ptr) => {
                        rig.fill(ptr, DType::F32, 16, of as f64).unwrap();
                        let stats = rig.memory_stats();
                        assert!(stats.in_use + stats.pooled + stats.releasing <= BUDGET, "{stats:?}");
                        rig.free(ptr).unwrap();
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}"),
                }
            }
        })
    }));
    assert_eq!(rig.memory_stats().in_use, 0);
    rig.free(rig.alloc(BUDGET).unwrap()).unwrap();
}

#[test]
fn more_than_the_budget_is_refused() {
    explore_each("too much", Time::Stands, too_much);
}

/// Budgets come and go while memory is used.
fn changing(submits: Submits) {
    let rig = Rig::new(submits);
    let uses = [300, 500].map(|len| {
        spawn(&rig, move |rig| {
            for round in 0..2 {
                let ptr = rig.alloc(len).unwrap();
                rig.fill(ptr, DType::F32, 16, 1.0).unwrap();
                rig.copy_htod(ptr, &pattern(round, 12)).unwrap();
                assert_eq!(read(rig, ptr, 12).unwrap(), pattern(round, 12));
                rig.free(ptr).unwrap();
            }
        })
    });
    let changes = spawn(&rig, |rig| {
        rig.set_memory_budget(Some(8192)).unwrap();
        rig.trim().unwrap();
        rig.flush().unwrap();
        rig.set_memory_budget(None).unwrap();
    });
    join(uses.into_iter().chain([changes]));
    rig.assert_gives_all_back();
}

#[test]
fn budgets_and_trims_disturb_nobody() {
    explore_each("changing", Time::Stands, changing);
}

/// Two threads free one handle, one reads and views it, and one takes memory of the same size.
fn one_handle(submits: Submits) {
    let (rig, ptr) = Rig::holding(submits, 64);
    let freed = Arc::new(AtomicUsize::new(0));
    let free = |freed: Arc<AtomicUsize>| {
        move |rig: &Rig| match rig.free(ptr) {
            Ok(()) => _ = freed.fetch_add(1, Ordering::SeqCst),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidHandle),
        }
    };
    let frees = [(); 2].map(|()| spawn(&rig, free(Arc::clone(&freed))));
    let uses = spawn(&rig, move |rig| {
        match rig.view(ptr, 16, 32) {
            Ok(view) => {
                assert_eq!(read(rig, view, 32).unwrap(), pattern(1, 64)[16..48]);
                rig.free(view).unwrap();
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidHandle),
        }
        match read(rig, ptr, 64) {
            Ok(bytes) => assert_eq!(bytes, pattern(1, 64)),
            Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidHandle),
        }
    });
    let takes = spawn(&rig, |rig| {
        let other = rig.alloc(64).unwrap();
        rig.copy_htod(other, &pattern(2, 64)).unwrap();
        assert_eq!(read(rig, other, 64).unwrap(), pattern(2, 64));
        rig.free(other).unwrap();
    });
    join(frees.into_iter().chain([uses, takes]));
    assert_eq!(freed.load(Ordering::SeqCst), 1, "freed once");
    let stats = rig.memory_stats();
    assert_eq!((stats.in_use, stats.handles), (0, 0), "{stats:?}");
}

#[test]
fn a_handle_is_freed_once_and_used_before() {
    explore_each("one handle", Time::Stands, one_handle);
}

/// One thread exports and imports a buffer that another frees, and a third takes memory of the same size.
fn shared(submits: Submits) {
    let (rig, ptr) = Rig::holding(submits, 64);
    let exports = spawn(&rig, move |rig| {
        let (buffer, ..) = match rig.export_buffer(ptr) {
            Ok(exported) => exported,
            Err(error) => return assert_eq!(error.kind(), ErrorKind::InvalidHandle),
        };
        let other = rig.alloc(64).unwrap();
        assert!(rig.export_buffer(other).unwrap().0 != buffer, "an exported buffer is nobody else's");
        rig.free(other).unwrap();
        let again = rig.import_buffer(buffer).unwrap();
        rig.copy_htod(again, &pattern(3, 64)).unwrap();
        assert_eq!(read(rig, again, 64).unwrap(), pattern(3, 64));
        rig.free(again).unwrap();
    });
    let frees = spawn(&rig, move |rig| rig.free(ptr).unwrap());
    let takes = spawn(&rig, |rig| {
        let other = rig.alloc(64).unwrap();
        rig.copy_htod(other, &pattern(2, 64)).unwrap();
        assert_eq!(read(rig, other, 64).unwrap(), pattern(2, 64));
        rig.free(other).unwrap();
    });
    join([exports, frees, takes]);
    let stats = rig.memory_stats();
    assert_eq!((stats.in_use, stats.handles), (0, 0), "{stats:?}");
}

#[test]
fn a_shared_buffer_is_nobody_elses() {
    explore_each("shared", Time::Stands, shared);
}
