//! Calls that must fail, on every backend: the tabled ones of each operation, and random arguments.
//!
//! `RANDOM_CALLS=1000000 cargo test -p suites --test bad_input random` makes more random calls than the usual
//! 5,000.

mod deadline;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use backend_api::ComputeBackend;
use conformance::bad_input::{self, Report};
use libtest_mimic::{Arguments, Failed, Trial};
use suites::{BackendUnderTest, backends, registry};

/// How many failures of an operation are listed.
const LISTED: usize = 20;

/// The fewest bad calls that a whole run makes on each backend.
const FEWEST: usize = 600;

/// Random calls on each backend.
const RANDOM_CALLS: usize = 5_000;

/// One random call, compiling a kernel included, must be back by then.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// A backend, a second one whose handles are foreign to it, and how many bad calls were made.
#[derive(Debug)]
struct Pair {
    tested: BackendUnderTest,
    other: Result<Box<dyn ComputeBackend>, String>,
    calls: AtomicUsize,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test compares the number of live handles before and after its calls.
    arguments.test_threads = Some(1);
    let pairs: Vec<Arc<Pair>> = backends().into_iter().map(|tested| Arc::new(Pair::new(tested))).collect();
    let trials = pairs.iter().flat_map(trials).collect();
    let conclusion = suites::run(&arguments, trials);
    let whole =
        !arguments.list && arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.ignored;
    let mut complete = true;
    for pair in pairs.iter().filter(|_| !arguments.list) {
        let calls = pair.calls.load(Ordering::Relaxed);
        println!("{}: {calls} bad calls", pair.tested.label);
        complete &= !whole || calls >= FEWEST;
    }
    if complete {
        conclusion.exit_code()
    } else {
        println!("fewer than {FEWEST} bad calls on a backend");
        ExitCode::FAILURE
    }
}

fn trials(pair: &Arc<Pair>) -> Vec<Trial> {
    let slug = &pair.tested.slug;
    let mut trials: Vec<Trial> = bad_input::operations()
        .into_iter()
        .map(|operation| {
            let name = format!("bad_input/{slug}/{}", operation.label.replace(' ', "_"));
            let pair = Arc::clone(pair);
            Trial::test(name, move || {
                let (backend, other) = pair.backends()?;
                pair.told(bad_input::run_operation(backend, other, &operation))
            })
        })
        .collect();
    let random = Arc::clone(pair);
    trials.push(Trial::test(format!("bad_input/{slug}/random"), move || random_arguments(random)));
    trials
}

impl Pair {
    fn new(tested: BackendUnderTest) -> Self {
        let other = registry().create(&tested.selector).map_err(|error| error.to_string());
        Self { tested, other, calls: AtomicUsize::new(0) }
    }

    fn backends(&self) -> Result<(&dyn ComputeBackend, &dyn ComputeBackend), String> {
        let other = self.other.as_deref().map_err(String::clone)?;
        Ok((self.tested.backend()?, other))
    }

    fn told(&self, report: Report) -> Result<(), Failed> {
        self.calls.fetch_add(report.calls, Ordering::Relaxed);
        listed(report.failures, report.calls)
    }
}

fn random_arguments(pair: Arc<Pair>) -> Result<(), Failed> {
    let calls = suites::number("RANDOM_CALLS")?.unwrap_or(RANDOM_CALLS);
    let report = deadline::within(CALL_LIMIT, move |steps| {
        let backend = pair.tested.backend()?;
        let report = bad_input::random_arguments(backend, "arguments", calls, &|label| steps.begin(label));
        println!("{}: {} random calls, {} of them good", pair.tested.label, report.calls, report.accepted);
        Ok::<_, String>(report)
    })??;
    listed(report.failures, report.calls)
}

fn listed(mut failures: Vec<String>, calls: usize) -> Result<(), Failed> {
    if failures.is_empty() {
        return Ok(());
    }
    let failed = failures.len();
    failures.truncate(LISTED);
    Err(format!("{failed} of {calls} calls went wrong:\n{}", failures.join("\n")).into())
}
