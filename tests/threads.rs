//! One backend used by several threads at once, and several opened and closed at once, on every backend.

mod deadline;

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use backend_api::{BackendResult, BackendTranspose::NoTrans, DType};
use conformance::threads;
use libtest_mimic::{Arguments, Trial};
use suites::{backends, registry};

const THREADS: usize = 8;
const OPS: usize = 1000;
const ROUNDS: usize = 1000;

/// Threads that open backends, and how many each.
const OWNERS: usize = 4;
const BACKENDS: usize = 6;

/// The longest that all of them may take for one.
const OWNER_LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test brings its own threads.
    arguments.test_threads = Some(1);
    let mut trials = Vec::new();
    for tested in backends() {
        let tested = Arc::new(tested);
        let (mixed, race) = (Arc::clone(&tested), Arc::clone(&tested));
        let slug = &tested.slug;
        trials.push(Trial::test(format!("threads/{slug}/mixed_operations"), move || {
            let checked = threads::run(mixed.backend()?, THREADS, OPS)?;
            println!("{}: {checked} results of {THREADS} threads right", mixed.label);
            Ok(())
        }));
        trials.push(Trial::test(format!("threads/{slug}/different_factors"), move || {
            Ok(threads::factor_race(race.backend()?, ROUNDS)?)
        }));
        let selector = tested.selector.clone();
        trials.push(Trial::test(format!("threads/{slug}/backends_come_and_go"), move || {
            tested.backend()?;
            Ok(deadline::within(OWNER_LIMIT, move |steps| come_and_go(&selector, steps))??)
        }));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
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
