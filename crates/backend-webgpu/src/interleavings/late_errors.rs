//! Batches that the driver refuses, and who is told.

use std::sync::Arc;

use backend_api::{BackendResult, ComputeBackend, ErrorKind};

use super::{Rig, Submits, Time, explore, explore_each, join, pattern, read, spawn};
use crate::device::Health;
use crate::sync::{mpsc, thread};

/// Memory whose buffer is destroyed: a batch that writes it is refused.
fn destroyed(rig: &Rig) -> u64 {
    let ptr = rig.alloc(64).unwrap();
    rig.export_buffer(ptr).unwrap().0.destroy();
    ptr
}

/// Whether the driver's error was returned.
fn is_told(outcome: &BackendResult<Vec<u8>>) -> bool {
    if let Err(error) = outcome {
        assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
    }
    outcome.is_err()
}

/// A batch is refused. Who has used the backend before is told once, and nobody reads stale bytes as if they
/// were new.
fn refused(submits: Submits) {
    let rig = Rig::new(submits);
    let (lost, ptr) = (destroyed(&rig), rig.alloc(64).unwrap());
    rig.copy_htod(ptr, &pattern(1, 64)).unwrap();
    rig.synchronize().unwrap();
    let (tell, told) = mpsc::channel();
    let writes = spawn(&rig, move |rig| {
        rig.copy_htod(ptr, &pattern(2, 64)).unwrap();
        rig.copy_htod(lost, &pattern(3, 64)).unwrap();
        tell.send(()).unwrap();
        assert!(is_told(&read(rig, ptr, 64)), "who lost work is told");
        assert!(!is_told(&read(rig, ptr, 64)), "once");
    });
    let begins_later = spawn(&rig, move |rig| {
        told.recv().unwrap();
        if let Ok(bytes) = read(rig, ptr, 64) {
            assert_eq!(bytes, pattern(2, 64), "stale");
        }
    });
    join([writes, begins_later]);
    assert!(rig.synchronize().is_err(), "this thread began before");
    rig.synchronize().unwrap();
    rig.copy_htod(ptr, &pattern(4, 64)).unwrap();
    assert_eq!(read(&rig, ptr, 64).unwrap(), pattern(4, 64));
}

#[test]
fn a_refused_batch_is_told_once_to_each_that_it_concerns() {
    explore_each("refused", Time::Stands, refused);
}

/// A kernel that is recorded behind a refused batch reads what that should have written.
fn behind(submits: Submits) {
    let rig = Rig::new(submits);
    let lost = destroyed(&rig);
    let [from, to, other] = [(); 3].map(|()| rig.alloc(64).unwrap());
    rig.synchronize().unwrap();
    let (tell, told) = mpsc::channel();
    let writes = spawn(&rig, move |rig| {
        // One batch, and without waiting for it the next.
        rig.copy_htod(from, &pattern(2, 32)).unwrap();
        rig.copy_htod(lost, &pattern(3, 32)).unwrap();
        rig.copy_htod(other, &pattern(3, 32)).unwrap();
        rig.copy_dtod(to, from, 32).unwrap();
        // The buffer goes to another allocation, which has nothing to do with it.
        rig.free(from).unwrap();
        rig.alloc(64).unwrap();
        tell.send(()).unwrap();
    });
    let begins_later = spawn(&rig, move |rig| {
        told.recv().unwrap();
        assert!(is_told(&read(rig, to, 32)), "a copy of what was never written");
    });
    join([writes, begins_later]);
}

#[test]
fn what_is_made_of_stale_memory_is_stale() {
    explore_each("behind", Time::Stands, behind);
}

/// Threads report errors of the driver at the same time: each has a number of its own, and whoever has used
/// the backend before is told of one, and then of no more.
fn reports() {
    let health = Health::detached();
    let witness = health.witness();
    let (tell, numbers) = mpsc::channel();
    join((0..3).map(|_| {
        let (health, tell) = (Arc::clone(&health), tell.clone());
        thread::spawn(move || {
            health.witness();
            let error = wgpu::Error::Internal { source: "test".into(), description: "late".to_owned() };
            let number = health.report(error);
            tell.send(number).unwrap();
            assert!(health.take_late("test", health.witness(), 0, || 0).is_err(), "number {number} is there");
        })
    }));
    let mut numbers: Vec<u64> = [(); 3].map(|()| numbers.recv().unwrap()).into();
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3]);
    assert!(health.take_late("test", witness, 0, || 0).is_err(), "this thread began before");
    assert!(health.take_late("test", health.witness(), 3, || 0).is_ok(), "once");
}

#[test]
fn late_errors_have_numbers_of_their_own() {
    explore("reports", Time::Stands, reports);
}
