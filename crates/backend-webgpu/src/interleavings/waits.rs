//! Waits that end early: by a loss, or because time is up.

use std::sync::Arc;
use std::time::Duration;

use backend_api::{ComputeBackend, DType, ErrorKind};

use super::{Rig, Submits, Time, explore, explore_each, join, pattern, read, spawn};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::transfer::StagingRing;

/// The device is lost among calls: each works or says so, and soon all do.
fn loss(submits: Submits) {
    let (rig, ptr) = Rig::holding(submits, 80);
    let other = rig.alloc(80).unwrap();
    let uses = [(); 2].map(|()| {
        spawn(&rig, move |rig| {
            let calls = [
                read(rig, ptr, 80).map(|bytes| assert_eq!(bytes, pattern(1, 80))),
                rig.fill(other, DType::F32, 4, 1.0),
                rig.alloc(80).and_then(|other| rig.copy_htod(other, &pattern(2, 80))),
                rig.synchronize(),
                read(rig, ptr, 80).map(|bytes| assert_eq!(bytes, pattern(1, 80))),
            ];
            for error in calls.into_iter().filter_map(Result::err) {
                assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error:?}");
            }
        })
    });
    let destroys = spawn(&rig, |rig| rig.device().unwrap().destroy());
    join(uses.into_iter().chain([destroys]));
    let error = rig.synchronize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(!rig.is_initialized());
}

#[test]
fn after_a_loss_every_call_says_so() {
    explore_each("loss", Time::Passes, loss);
}

/// Calls run out of time among others; afterwards everything works, and all staging buffers are there.
fn out_of_time(submits: Submits) {
    const LEN: usize = StagingRing::CHUNK * 4;
    let rig = Rig::new(submits);
    let ptr = rig.alloc(LEN).unwrap();
    rig.set_timeout(Duration::from_millis(1)).unwrap();
    join((0..2).map(|of| {
        spawn(&rig, move |rig| {
            let calls = [
                rig.copy_htod(ptr, &pattern(of, LEN)),
                read(rig, ptr, LEN).map(drop),
                rig.flush(),
                rig.synchronize(),
            ];
            for error in calls.into_iter().filter_map(Result::err) {
                assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
            }
        })
    }));
    // No other thread holds the lock, and time is enough.
    while rig.set_timeout(Duration::from_secs(1000)).is_err() {}
    rig.copy_htod(ptr, &pattern(3, LEN)).unwrap();
    assert_eq!(read(&rig, ptr, LEN).unwrap(), pattern(3, LEN));
}

#[test]
fn a_call_out_of_time_takes_nothing_along() {
    for submits in [Submits::Caller, Submits::Deferred, Submits::Worker] {
        explore(&format!("out of time, {submits:?}"), Time::Passes, move || out_of_time(submits));
    }
}

/// Threads wait for each other, and a thread that holds the lock may lock again.
fn locked() {
    let rig = Rig::new(Submits::Locked);
    let inside = Arc::new(AtomicUsize::new(0));
    join((0..3).map(|_| {
        let inside = Arc::clone(&inside);
        spawn(&rig, move |rig| {
            let guard = rig.context("guard").unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
            let ptr = rig.alloc(16).unwrap();
            assert_eq!(read(rig, ptr, 16).unwrap().len(), 16);
            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1, "one at a time");
            drop(guard);
        })
    }));
}

#[test]
fn threads_wait_for_each_other() {
    explore("locked", Time::Stands, locked);
}
