//! Work on every core.
//!
//! Operations run on a pool of their own, and a caller waits for it without doing anything else meanwhile.
//! Were a waiting caller given another task that calls the backend, that task could wait for a lock that the
//! caller itself holds. Threads of any rayon pool look for such tasks while they wait, so they wait through a
//! thread that isn't one.
//!
//! Work is split by halving, at places that depend on sizes only. Without threads the same halves run one
//! after the other.

/// Permission to use the cores, made by [`Cores::run`] for work that is worth it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cores {
    /// The calling thread only.
    One,
    /// Every thread of the pool, one of which the work runs on.
    #[cfg(not(target_family = "wasm"))]
    All,
}

/// Work on chunks of two slices, given the first element of the first one's.
type Work<'a, A, B> = dyn Fn(usize, (&mut [A], &mut [B])) + Sync + 'a;

/// Work that is done once, by the thread that calls it first. One type for all, as every other would have a copy of
/// what hands it to another thread.
type Once<'a, T> = dyn FnMut(T) + Send + 'a;

/// Work as something that does nothing the second time.
fn once<T>(work: impl FnOnce(T) + Send) -> impl FnMut(T) + Send {
    let mut work = Some(work);
    move |x| {
        if let Some(work) = work.take() {
            work(x);
        }
    }
}

impl Cores {
    /// Runs `work`, which takes about `steps` steps of a third of a nanosecond.
    #[cfg_attr(target_family = "wasm", expect(unused_variables, reason = "nothing takes the work away"))]
    pub(crate) fn run(steps: usize, work: impl FnOnce(Self) + Send) {
        let mut work = once(work);
        #[cfg(not(target_family = "wasm"))]
        pool::run(steps, &mut work);
        work(Self::One);
    }

    /// [`run`](Self::run) for work that may fail.
    pub(crate) fn try_run<E: Send>(
        steps: usize,
        work: impl FnOnce(Self) -> Result<(), E> + Send,
    ) -> Result<(), E> {
        let mut outcome = Ok(());
        Self::run(steps, |cores| outcome = work(cores));
        outcome
    }

    /// Runs both, at the same time if there are cores for it.
    pub(crate) fn join(self, left: impl FnOnce() + Send, right: impl FnOnce() + Send) {
        self.join_once(&mut once(|()| left()), &mut once(|()| right()));
    }

    fn join_once(self, left: &mut Once<'_, ()>, right: &mut Once<'_, ()>) {
        match self {
            Self::One => {
                left(());
                right(());
            }
            #[cfg(not(target_family = "wasm"))]
            Self::All => {
                rayon::join(|| left(()), || right(()));
            }
        }
    }

    /// [`join`](Self::join) of two computations.
    pub(crate) fn join_results<R: Default + Send>(
        self,
        left: impl FnOnce() -> R + Send,
        right: impl FnOnce() -> R + Send,
    ) -> (R, R) {
        let mut results = (R::default(), R::default());
        self.join(|| results.0 = left(), || results.1 = right());
        results
    }

    /// Calls `work(first, chunk)` for chunks that together are `data`; each starts at a multiple of `unit`
    /// and has about `grain` elements.
    pub(crate) fn chunks<T: Send>(
        self,
        data: &mut [T],
        unit: usize,
        grain: usize,
        work: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        self.chunks_of_two((data, &mut [(); 0]), unit, grain, &|first, (chunk, _)| work(first, chunk));
    }

    /// [`chunks`](Self::chunks) of two slices together, of which the second has the first one's length or no
    /// elements at all.
    pub(crate) fn chunks_of_two<A: Send, B: Send>(
        self,
        data: (&mut [A], &mut [B]),
        unit: usize,
        grain: usize,
        work: &Work<'_, A, B>,
    ) {
        self.chunks_from(0, data, unit.max(1), grain, work);
    }

    fn chunks_from<A: Send, B: Send>(
        self,
        first: usize,
        (one, other): (&mut [A], &mut [B]),
        unit: usize,
        grain: usize,
        work: &Work<'_, A, B>,
    ) {
        let middle = one.len() / unit / 2 * unit;
        if one.len() <= grain || middle == 0 {
            return work(first, (one, other));
        }
        let rest = middle.min(other.len());
        let ((a, b), (c, d)) = (one.split_at_mut(middle), other.split_at_mut(rest));
        self.join(
            || self.chunks_from(first, (a, c), unit, grain, work),
            || self.chunks_from(first + middle, (b, d), unit, grain, work),
        );
    }
}

/// How many threads work.
pub(crate) fn threads() -> usize {
    #[cfg(not(target_family = "wasm"))]
    let threads = pool::get().map_or(1, rayon::ThreadPool::current_num_threads);
    #[cfg(target_family = "wasm")]
    let threads = 1;
    threads
}

#[cfg(not(target_family = "wasm"))]
mod pool {
    use std::sync::LazyLock;
    use std::thread;

    use rayon::{ThreadPool, ThreadPoolBuilder};

    use super::{Cores, Once};

    /// Steps of work below which waking threads costs more than it brings: some 20 µs.
    const WORTH_WAKING: usize = 1 << 16;

    /// Steps of work below which starting a thread costs more than it brings: some 300 µs.
    const WORTH_STARTING: usize = 1 << 20;

    static POOL: LazyLock<Option<ThreadPool>> = LazyLock::new(|| {
        let threads = thread::available_parallelism().map_or(1, usize::from);
        if threads == 1 {
            return None;
        }
        let built =
            ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("backend-cpu-{i}")).build();
        built.inspect_err(|error| tracing::warn!(%error, "working on one thread")).ok()
    });

    /// The pool, unless there is only one core or no thread could be started.
    pub(super) fn get() -> Option<&'static ThreadPool> {
        POOL.as_ref()
    }

    /// Does the work, if waking threads is worth it.
    pub(super) fn run(steps: usize, work: &mut Once<'_, Cores>) {
        if steps < WORTH_WAKING {
            return;
        }
        let Some(pool) = get() else { return };
        if rayon::current_thread_index().is_none() {
            return run_on(pool, work);
        }
        if steps >= WORTH_STARTING {
            thread::scope(|scope| {
                let started = thread::Builder::new().spawn_scoped(scope, || run_on(pool, work));
                if let Err(error) = started {
                    tracing::debug!(%error, "working on one thread");
                }
            });
        }
    }

    /// The calling thread must not be one of a rayon pool.
    fn run_on(pool: &ThreadPool, work: &mut Once<'_, Cores>) {
        pool.in_place_scope(|scope| scope.spawn(|_| work(Cores::All)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_everything_once_and_start_at_units() {
        for steps in [0, usize::MAX] {
            let mut data = vec![0u32; 1001];
            Cores::run(steps, |cores| {
                cores.chunks(&mut data, 7, 50, &|first, chunk: &mut [u32]| {
                    assert_eq!(first % 7, 0);
                    for (i, x) in chunk.iter_mut().enumerate() {
                        *x += (first + i) as u32 + 1;
                    }
                });
            });
            assert!(data.iter().enumerate().all(|(i, &x)| x == i as u32 + 1));
        }
    }
}
