//! Pieces of work by several threads.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Does each piece of the work, so many at a time, beginning with the first. Returns what the pieces returned, in the
/// order in which they ended.
pub(crate) fn map<T: Send, R: Send>(work: Vec<T>, at_once: usize, act: impl Fn(T) -> R + Sync) -> Vec<R> {
    let queue = Mutex::new(VecDeque::from(work));
    let ended = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(piece) = next() {
                    let result = act(piece);
                    ended.lock().unwrap_or_else(PoisonError::into_inner).push(result);
                }
            });
        }
    });
    ended.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_done_once() {
        for at_once in [1, 2, 9] {
            let mut results = map((0..100).collect(), at_once, |i: u32| i * 3);
            results.sort_unstable();
            assert_eq!(results, (0..100).map(|i| i * 3).collect::<Vec<_>>());
        }
    }
}
