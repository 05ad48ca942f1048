//! Parts of the tests by several threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::ensure;

use crate::Part;

/// Parts that run at a time: a browser keeps about one core busy, and CI has two.
const AT_ONCE: usize = 2;

/// Runs each part, beginning with the first. All of them run, whatever fails; every failure is printed.
pub(crate) fn run(parts: Vec<Part<'_>>) -> anyhow::Result<()> {
    let queue = Mutex::new(VecDeque::from(parts));
    let failed = AtomicUsize::new(0);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(part) = next() {
                    if let Err(error) = part() {
                        println!("{error:#}");
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    ensure!(failed == 0, "{failed} parts failed");
    Ok(())
}
