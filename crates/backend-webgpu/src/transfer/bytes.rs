//! Copies within the host's memory.

use std::num::NonZero;
use std::sync::OnceLock;
use std::thread::{self, Builder};

/// Bytes that are worth a thread: starting one takes as long as copying some hundred kilobytes.
const SHARE: usize = 1 << 20;

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
    let threads = threads(src.len());
    if threads < 2 {
        return dst.copy_from_slice(src);
    }
    let share = src.len().div_ceil(threads);
    let are_copied = thread::scope(|scope| {
        let mut parts = dst.chunks_mut(share).zip(src.chunks(share));
        let own = parts.next();
        let have_threads = parts
            .all(|(dst, src)| Builder::new().spawn_scoped(scope, move || dst.copy_from_slice(src)).is_ok());
        if let Some((dst, src)) = own {
            dst.copy_from_slice(src);
        }
        have_threads
    });
    if !are_copied {
        // The system has no more threads, or none at all.
        dst.copy_from_slice(src);
    }
}

/// [`copy`] to memory that may only be written, as that of a mapped buffer.
///
/// # Panics
/// If the lengths differ.
pub(super) fn write(mut dst: wgpu::WriteOnly<'_, [u8]>, src: &[u8]) {
    assert_eq!(dst.len(), src.len(), "as many bytes");
    let threads = threads(src.len());
    if threads < 2 {
        return dst.copy_from_slice(src);
    }
    let are_copied = thread::scope(|scope| {
        let (blocks, mut rest) = dst.slice(..).into_chunks::<SHARE>();
        let (from, last) = src.as_chunks::<SHARE>();
        let mut shares: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
        for (i, block) in blocks.into_iter().zip(from).enumerate() {
            shares[i % threads].push(block);
        }
        let copy = |share: Vec<(wgpu::WriteOnly<'_, [u8; SHARE]>, &[u8; SHARE])>| {
            for (to, from) in share {
                wgpu::WriteOnly::<[u8]>::from(to).copy_from_slice(from);
            }
        };
        let own = shares.pop();
        let have_threads =
            shares.into_iter().all(|share| Builder::new().spawn_scoped(scope, move || copy(share)).is_ok());
        own.into_iter().for_each(copy);
        rest.copy_from_slice(last);
        have_threads
    });
    if !are_copied {
        dst.copy_from_slice(src);
    }
}

/// Threads that copying so many bytes is worth.
fn threads(bytes: usize) -> usize {
    // Linux reads several files to tell.
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = || *CORES.get_or_init(|| thread::available_parallelism().map_or(1, NonZero::get));
    match bytes / SHARE {
        shares @ 2.. => shares.min(cores()).min(MAX_THREADS),
        _ => 1,
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
            dst.fill(255);
            write(wgpu::WriteOnly::from_mut(&mut dst[..]), &src);
            assert!(dst == src, "{len} bytes written");
        }
    }
}
