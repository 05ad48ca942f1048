//! One backend used by several threads at once, on every backend.

use std::process::ExitCode;
use std::sync::Arc;

use conformance::threads;
use libtest_mimic::{Arguments, Trial};
use suites::backends;

const THREADS: usize = 8;
const OPS: usize = 1000;
const ROUNDS: usize = 1000;

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
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
