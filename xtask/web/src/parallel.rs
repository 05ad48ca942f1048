//! Parts of the tests by several threads.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::Part;

/// Parts that run at a time: a browser keeps about one core busy, and CI has two.
const AT_ONCE: usize = 2;

/// Runs each part, beginning with the first. All of them run, whatever fails; every failure is printed but the one that is
/// returned.
pub(crate) fn run(parts: Vec<Part<'_>>) -> anyhow::Result<()> {
    let queue = Mutex::new(VecDeque::from(parts));
    let failed = Mutex::new(None);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(part) = next() {
                    let Err(error) = part() else { continue };
                    let before = failed.lock().unwrap_or_else(PoisonError::into_inner).replace(error);
                    if let Some(error) = before {
                        println!("{error:#}");
                    }
                }
            });
        }
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
