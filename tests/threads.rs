//! One backend used by several threads at once, and several opened and closed at once, on every backend.

mod deadline;

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use backend_api::{BackendError, BackendResult, BackendTranspose::NoTrans, ComputeBackend, DType};
use conformance::threads;
use libtest_mimic::Trial;
use suites::{BackendUnderTest, registry};

const THREADS: usize = 8;
const OPS: usize = 1000;
const ROUNDS: usize = 1000;

/// Threads that open backends, and how many each.
const OWNERS: usize = 4;
const BACKENDS: usize = 6;

/// The longest that all of them may take for one.
const OWNER_LIMIT: Duration = Duration::from_secs(60);

/// The longest that reads by such futures may take.
const WAKER_LIMIT: Duration = Duration::from_secs(60);

/// Reads by futures whose waker calls the backend.
const READS: usize = 100;

fn main() -> ExitCode {
    // Each test brings its own threads.
    suites::run_one_at_a_time(trials)
}

fn trials(tested: Arc<BackendUnderTest>) -> Vec<Trial> {
    let (mixed, race, called) = (Arc::clone(&tested), Arc::clone(&tested), Arc::clone(&tested));
    let (slug, [calling, opening]) = (tested.slug.clone(), [(); 2].map(|()| tested.selector.clone()));
    vec![
        Trial::test(format!("threads/{slug}/mixed_operations"), move || {
            let checked = threads::run(mixed.backend()?, THREADS, OPS)?;
            println!("{}: {checked} results of {THREADS} threads right", mixed.label);
            Ok(())
        }),
        Trial::test(format!("threads/{slug}/different_factors"), move || {
            Ok(threads::factor_race(race.backend()?, ROUNDS)?)
        }),
        Trial::test(format!("threads/{slug}/wakers_that_call"), move || {
            called.backend()?;
            Ok(deadline::within(WAKER_LIMIT, move |_| wakers_that_call(&calling))??)
        }),
        Trial::test(format!("threads/{slug}/backends_come_and_go"), move || {
            tested.backend()?;
            Ok(deadline::within(OWNER_LIMIT, move |steps| come_and_go(&opening, steps))??)
        }),
    ]
}

/// A waker of an executor that goes on with other work where it is woken.
struct Caller(Arc<dyn ComputeBackend>, u64);

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.0.fill(self.1, DType::F32, 1, 1.0).ok();
    }
}

/// Reads beside a thread that records so much that it makes the device's callbacks meanwhile.
fn wakers_that_call(selector: &str) -> Result<(), String> {
    let text = |error: BackendError| error.to_string();
    let backend: Arc<dyn ComputeBackend> = Arc::from(registry().create(selector).map_err(text)?);
    let [read, busy, woken] = [(); 3].map(|()| backend.alloc(4));
    let [read, busy, woken] = [read.map_err(text)?, busy.map_err(text)?, woken.map_err(text)?];
    let waker = Waker::from(Arc::new(Caller(Arc::clone(&backend), woken)));
    let done = AtomicBool::new(false);
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                backend.fill(busy, DType::F32, 1, 1.0).ok();
            }
        });
        let reads = (0..READS).try_for_each(|number| {
            backend.fill(read, DType::F32, 1, number as f64).map_err(text)?;
            let mut bytes = [0xff; 4];
            {
                let mut context = Context::from_waker(&waker);
                let mut future = pin!(backend.copy_dtoh_async(&mut bytes, read));
                while future.as_mut().poll(&mut context).map_err(text)?.is_pending() {
                    // Others make the callback while nobody polls.
                    thread::sleep(Duration::from_micros(200));
                }
            }
            let found = f32::from_ne_bytes(bytes);
            // A panic would leave the other thread at work.
            if found == number as f32 { Ok(()) } else { Err(format!("{found} was read for {number}")) }
        });
        done.store(true, Ordering::Relaxed);
        reads
    });
    [read, busy, woken].into_iter().try_for_each(|handle| backend.free(handle)).map_err(text)?;
    result
}

/// Opens, uses and closes backends in several threads: some close while others compile.
fn come_and_go(selector: &str, steps: &deadline::Steps) -> Result<(), String> {
    let own = || {
        (0..BACKENDS).try_for_each(|number| {
            steps.begin(&format!("backend {number} of a thread"));
            open_use_close(selector)
        })
    };
    thread::scope(|scope| {
        let owners: Vec<_> = (0..OWNERS).map(|_| scope.spawn(own)).collect();
        owners.into_iter().try_for_each(|owner| match owner.join() {
            Ok(outcome) => outcome.map_err(|error| error.to_string()),
            Err(_) => Err("a thread panicked".to_owned()),
        })
    })
}

/// A product of ones, n of them for each number.
fn open_use_close(selector: &str) -> BackendResult<()> {
    const N: usize = 8;
    let backend = registry().create(selector)?;
    let [a, c] = [backend.alloc(4 * N * N)?, backend.alloc(4 * N * N)?];
    backend.fill(a, DType::F32, N * N, 1.0)?;
    backend.gemm(NoTrans, NoTrans, N, N, N, 1.0, a, N, a, N, 0.0, c, N)?;
    let mut product = [f32::NAN; N * N];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut product), c)?;
    assert_eq!(product, [N as f32; N * N]);
    Ok(())
}
