//! Copies within the host's memory.

use std::sync::OnceLock;

use parking_lot::Mutex;

/// What is copied at a time where several threads share a copy.
const PART: usize = 256 << 10;

/// Bytes that are worth sharing: a thread takes some microseconds to wake up, in which another copies 100 KB.
const SHARED_FROM: usize = 512 << 10;

/// Copies bytes, many of them by several threads, which start with the first such copy and end with this.
///
/// One thread reaches a part of the memory's speed only, and much less where the system has yet to provide
/// the pages of the destination.
#[derive(Debug, Default)]
pub(crate) struct Copier {
    helpers: OnceLock<Option<Helpers>>,
}

impl Copier {
    /// # Panics
    /// If the lengths differ.
    pub(super) fn copy(&self, dst: &mut [u8], src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "as many bytes");
        if src.len() < SHARED_FROM {
            return dst.copy_from_slice(src);
        }
        let parts = dst.chunks_mut(PART).zip(src.chunks(PART));
        self.share(parts, |(dst, src)| dst.copy_from_slice(src));
    }

    /// Copies to memory that may only be written, as that of a mapped buffer.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(super) fn write(&self, mut dst: wgpu::WriteOnly<'_, [u8]>, src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "as many bytes");
        if src.len() < SHARED_FROM {
            return dst.copy_from_slice(src);
        }
        let (parts, mut rest) = dst.into_chunks::<PART>();
        let (from, last) = src.as_chunks::<PART>();
        // Parts may go to other threads, their iterator may not.
        let parts: Vec<_> = parts.into_iter().zip(from).collect();
        self.share(parts.into_iter(), |(to, from)| wgpu::WriteOnly::<[u8]>::from(to).copy_from_slice(from));
        rest.copy_from_slice(last);
    }

    /// Copies each part, on this thread and on others that have time.
    fn share<T>(&self, parts: impl ExactSizeIterator<Item = T> + Send, copy: impl Fn(T) + Sync) {
        let others = parts.len().saturating_sub(1);
        let parts = Mutex::new(parts);
        let copy_parts = || {
            let next = || parts.lock().next();
            std::iter::from_fn(next).for_each(&copy);
        };
        match self.helpers.get_or_init(Helpers::start) {
            Some(helpers) if helpers.may_be_waited_for() => helpers.call_beside(others, copy_parts),
            _ => copy_parts(),
        }
    }
}

#[cfg(not(target_family = "wasm"))]
use helpers::Helpers;

#[cfg(not(target_family = "wasm"))]
mod helpers {
    use std::num::NonZero;
    use std::thread::{self, Builder, JoinHandle};

    use rayon::{ThreadPool, ThreadPoolBuilder};

    /// On 16 cores, 9.6 MB take 0.78 ms by one thread and 0.28 by four. Six take 0.20, but ResNet-50 and Whisper's encoder in
    /// ONNX Runtime as long as with four.
    const MAX_HELPERS: usize = 3;

    /// Threads that wait for work.
    #[derive(Debug)]
    pub(super) struct Helpers {
        /// Above the threads, which end when it is dropped, as fields are dropped in their order.
        pool: ThreadPool,
        _threads: Joined,
    }

    /// Threads that a drop waits for: their code may be unloaded afterwards, as that of a plugin.
    #[derive(Debug, Default)]
    struct Joined(Vec<JoinHandle<()>>);

    impl Helpers {
        /// `None` if the processor has one core only, or the system no more threads.
        pub(super) fn start() -> Option<Self> {
            let cores = thread::available_parallelism().map_or(1, NonZero::get);
            let count = MAX_HELPERS.min(cores - 1);
            if count == 0 {
                return None;
            }
            let mut threads = Joined::default();
            let start = |worker: rayon::ThreadBuilder| {
                let thread = Builder::new().name("webgpu-copy".to_owned()).spawn(|| worker.run())?;
                threads.0.push(thread);
                Ok(())
            };
            match ThreadPoolBuilder::new().num_threads(count).spawn_handler(start).build() {
                Ok(pool) => Some(Self { pool, _threads: threads }),
                Err(error) => {
                    tracing::warn!(%error, "large copies have no threads to share them with");
                    None
                }
            }
        }

        /// Whether the calling thread may wait for them. A thread of any rayon pool does other work of its own pool
        /// meanwhile, such as a call that needs the lock which this one holds.
        pub(super) fn may_be_waited_for(&self) -> bool {
            rayon::current_thread_index().is_none()
        }

        /// Has this thread and at most so many others call `work`.
        pub(super) fn call_beside(&self, others: usize, work: impl Fn() + Sync) {
            self.pool.in_place_scope(|scope| {
                for _ in 0..others.min(self.pool.current_num_threads()) {
                    scope.spawn(|_| work());
                }
                work();
            });
        }
    }

    impl Drop for Joined {
        fn drop(&mut self) {
            // What a copy panics with, its caller has been told.
            self.0.drain(..).for_each(|thread| _ = thread.join());
        }
    }
}

#[cfg(target_family = "wasm")]
mod no_helpers {
    /// A page has no threads.
    #[derive(Debug)]
    pub(super) enum Helpers {}

    impl Helpers {
        pub(super) const fn start() -> Option<Self> {
            None
        }

        pub(super) fn may_be_waited_for(&self) -> bool {
            match *self {}
        }

        pub(super) fn call_beside(&self, _: usize, _: impl Fn() + Sync) {
            match *self {}
        }
    }
}

#[cfg(target_family = "wasm")]
use no_helpers::Helpers;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_copied() {
        let copier = Copier::default();
        for len in [0, 1, SHARED_FROM - 1, SHARED_FROM, SHARED_FROM + PART, 5 * SHARED_FROM + 3] {
            let src: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            let mut dst = vec![255; len];
            copier.copy(&mut dst, &src);
            assert!(dst == src, "{len} bytes");
            dst.fill(255);
            copier.write(wgpu::WriteOnly::from_mut(&mut dst[..]), &src);
            assert!(dst == src, "{len} bytes written");
        }
    }

    /// A thread that waits for helpers in a pool of rayon's would begin the other copy, which needs the lock.
    #[test]
    fn copies_in_the_tasks_of_a_pool_begin_no_other_task() {
        let (copier, lock) = (Copier::default(), Mutex::new(()));
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let copy = || {
            let _guard = lock.try_lock().expect("one task at a time");
            let src = vec![7; 8 * SHARED_FROM];
            let mut dst = vec![0; src.len()];
            copier.copy(&mut dst, &src);
            assert!(dst == src);
        };
        for _ in 0..10 {
            pool.join(copy, copy);
        }
    }

    /// Several threads copy at once with few threads to help them.
    #[test]
    fn copies_share_their_helpers() {
        let copier = Copier::default();
        std::thread::scope(|scope| {
            for byte in 1..9 {
                let copier = &copier;
                scope.spawn(move || {
                    let src = vec![byte; 3 * SHARED_FROM + usize::from(byte)];
                    let mut dst = vec![0; src.len()];
                    copier.copy(&mut dst, &src);
                    assert!(dst == src, "{byte}");
                });
            }
        });
    }
}
