//! Copies within the host's memory.

use std::num::NonZero;
use std::thread::{self, Builder};

/// Bytes that are worth a thread: starting one takes as long as copying some hundred kilobytes.
const SHARE: usize = 4 << 20;

const MAX_THREADS: usize = 4;

/// Copies bytes to as many others, many of them by several threads.
///
/// One thread reaches a part of the memory's speed only, and much less where the system has yet to provide
/// the pages of `dst`.
///
/// # Panics
/// If the lengths differ.
pub(super) fn copy(dst: &mut [u8], src: &[u8]) {
    assert_eq!(dst.len(), src.len(), "as many bytes");
    let shares = src.len() / SHARE;
    if shares < 2 {
        return dst.copy_from_slice(src);
    }
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let share = src.len().div_ceil(shares.min(cores).min(MAX_THREADS));
    let are_copied = thread::scope(|scope| {
        dst.chunks_mut(share)
            .zip(src.chunks(share))
            .all(|(dst, src)| Builder::new().spawn_scoped(scope, move || dst.copy_from_slice(src)).is_ok())
    });
    if !are_copied {
        // The system has no more threads, or none at all.
        dst.copy_from_slice(src);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied() {
        for len in [0, 1, SHARE, 2 * SHARE - 1, 2 * SHARE, 5 * SHARE + 3] {
            let src: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut dst = vec![255; len];
            copy(&mut dst, &src);
            assert!(dst == src, "{len} bytes");
        }
    }
}
