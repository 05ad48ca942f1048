//! Backends that close while others work.

use backend_api::{ComputeBackend, DType};

use super::{Rig, Submits, Time, explore, explore_each, join, pattern, read, spawn};
use crate::sync::thread;

/// The last of three threads closes the device, with work that nobody has waited for.
fn last(submits: Submits) {
    let rig = Rig::new(submits);
    let ptr = rig.alloc(64).unwrap();
    let threads = (0..2).map(|of| {
        spawn(&rig, move |rig| {
            rig.copy_htod(ptr, &pattern(of, 64)).unwrap();
            rig.fill(ptr, DType::F32, 4, 1.0).unwrap();
            rig.flush().unwrap();
            rig.fill(ptr, DType::F32, 4, 1.0).unwrap();
        })
    });
    let threads: Vec<_> = threads.collect();
    drop(rig);
    join(threads);
}

#[test]
fn the_last_user_closes() {
    explore_each("last", Time::Stands, last);
}

/// Two backends open, compile, work and close.
fn two(submits: [Submits; 2]) {
    join(submits.map(|submits| {
        thread::spawn(move || {
            let rig = Rig::new(submits);
            let ptr = rig.alloc(64).unwrap();
            rig.fill(ptr, DType::F32, 4, 1.0).unwrap();
            rig.copy_htod(ptr, &pattern(1, 64)).unwrap();
            assert_eq!(read(&rig, ptr, 64).unwrap(), pattern(1, 64));
        })
    }));
}

#[test]
fn backends_open_and_close_beside_each_other() {
    explore("two, Caller and Worker", Time::Stands, || two([Submits::Caller, Submits::Worker]));
    explore("two Workers", Time::Stands, || two([Submits::Worker; 2]));
}
