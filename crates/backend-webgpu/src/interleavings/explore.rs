//! Running a scenario many times.

use std::panic::{self, AssertUnwindSafe};
use std::time::Instant;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use super::rig::Submits;
use crate::sync;

/// What a test does without `INTERLEAVINGS`.
const QUICK: u64 = 60;

/// Runs of one seed of the scheduler that learns how long a scenario is.
const RUNS: u64 = 20;

/// Preemptions in a run of the scheduler that counts them, and one more.
const DEPTHS: [usize; 3] = [2, 3, 5];

/// Steps after which a scenario hangs.
const MAX_STEPS: usize = 400_000;

/// Bytes of a thread's stack: naga's parser is a recursive one.
const STACK: usize = 1 << 20;

/// Whether a wait may end because it has taken long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// A wait ends because it is told, or never.
    Stands,
    Passes,
}

/// [`explore`]s a scenario with each thread that may submit.
pub(super) fn explore_each(name: &str, time: Time, scenario: fn(Submits)) {
    for submits in Submits::ALL {
        explore(&format!("{name}, {submits:?}"), time, move || scenario(submits));
    }
}

/// Runs `scenario` as often as the environment variable `INTERLEAVINGS` says, half of the runs with threads
/// chosen at random, half with few preemptions at random places. `INTERLEAVINGS_SEED` is the seed of the
/// first run; a failure tells its own.
pub(super) fn explore(name: &str, time: Time, scenario: impl Fn() + Send + Sync + Clone + 'static) {
    let number = |variable| std::env::var(variable).ok().and_then(|text| text.parse().ok());
    let runs: u64 = number("INTERLEAVINGS").unwrap_or(QUICK);
    let first: u64 = number("INTERLEAVINGS_SEED").unwrap_or(0);
    let start = Instant::now();
    let (chosen, counted) = (runs.div_ceil(2), (runs / 2).div_ceil(RUNS));
    for seed in first..first + chosen {
        run(name, seed, time, RandomScheduler::new_from_seed(seed, 1), scenario.clone());
    }
    for seed in first..first + counted {
        let depth = DEPTHS[seed as usize % DEPTHS.len()];
        let scheduler = PctScheduler::new_from_seed(seed, depth, RUNS as usize);
        run(name, seed, time, scheduler, scenario.clone());
    }
    println!("{name}: {} runs in {:.1} s", chosen + counted * RUNS, start.elapsed().as_secs_f64());
}

fn run(
    name: &str,
    seed: u64,
    time: Time,
    scheduler: impl Scheduler + 'static,
    scenario: impl Fn() + Send + Sync + 'static,
) {
    let mut config = Config::default();
    config.stack_size = STACK;
    config.max_steps = MaxSteps::FailAfter(MAX_STEPS);
    // The seed is shorter, and says as much.
    config.failure_persistence = FailurePersistence::None;
    config.silence_warnings = true;
    let test = move || {
        sync::begin(time == Time::Passes);
        scenario();
    };
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config).run(test)));
    // What nobody polled for goes before the thread does.
    sync::begin(false);
    if let Err(cause) = outcome {
        // Two runs are one of each scheduler.
        eprintln!("{name} failed; again with: cargo xtask test-interleavings --iterations 2 --seed {seed}");
        panic::resume_unwind(cause);
    }
}
