//! The backend that compares two others: silent where they agree (planted errors are in crates/backend-verify/tests).
//!
//! On every backend, compared with the CPU, run a sample of the conformance suite (one case in so many, `EVERY=1`
//! for all, `CASE=` for some) and random programs: a disagreement is an error of either backend, or of the
//! comparison.

#[path = "../deadline.rs"]
mod deadline;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use backend_api::{ComputeBackend, Registry};
use conformance::program::{Findings, Plain, Profile, generate, run};
use conformance::{Case, Outcome, cases};
use libtest_mimic::{Arguments, Failed, Trial};
use suites::{BackendUnderTest, Filter, Sample, backends, registry};

/// One in so many cases of the conformance suite.
const SAMPLE: usize = 48;

/// Random programs on each backend.
const PROGRAMS: usize = 12;

/// A call on both must be back by then, compiling kernels included.
const CALL_LIMIT: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = Vec::new();
    for tested in backends().into_iter().map(Arc::new) {
        let slug = &tested.slug;
        for (name, check) in [("cases", cases_agree as Check), ("programs", programs_agree)] {
            let tested = Arc::clone(&tested);
            trials.push(Trial::test(format!("verify/{slug}/{name}"), move || check(&tested)));
        }
    }
    suites::run(&arguments, trials).exit_code()
}

type Check = fn(&BackendUnderTest) -> Result<(), Failed>;

/// A registry of all backends, this one too.
fn verifying() -> Registry {
    let mut registry = registry();
    backend_verify::register(&mut registry);
    registry
}

fn open(tested: &BackendUnderTest) -> Result<Box<dyn ComputeBackend>, Failed> {
    tested.backend()?;
    verifying()
        .create(&format!("verify:{},cpu", tested.selector))
        .map_err(|error| format!("{error:?}").into())
}

fn cases_agree(tested: &BackendUnderTest) -> Result<(), Failed> {
    let backend = open(tested)?;
    let filter = Filter::from_environment();
    filter.check(cases().iter().map(Case::path))?;
    let device = tested.backend()?.device_info().map_err(|error| format!("{error:?}"))?;
    let sample = Sample::nested(&device, SAMPLE)?;
    let is_meant = |path: &str| if filter.is_empty() { sample.has(path) } else { filter.has(path) };
    let (mut count, mut failures) = (0, Vec::new());
    // Cases that count handles or allocate on purpose until there is no memory are for one backend.
    for case in cases().into_iter().filter(|case| case.is_one_call() && is_meant(&case.path())) {
        match case.run(&*backend) {
            Ok(Outcome::Right | Outcome::Refused) => count += 1,
            Ok(other) => failures.push(format!("{}: {other:?}", case.path())),
            Err(failure) => failures.push(failure.to_string()),
        }
        if case.path().len() % 4 == 0 {
            match case.run_replayed(&*backend) {
                Ok(_) => count += 1,
                Err(failure) => failures.push(format!("replayed: {failure}")),
            }
        }
    }
    println!("{}: {count} cases agree with the CPU, {} don't", tested.label, failures.len());
    failures.truncate(20);
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

fn programs_agree(tested: &BackendUnderTest) -> Result<(), Failed> {
    let mut total = Findings::default();
    let mut target = Plain(open(tested)?);
    for number in 0..PROGRAMS {
        let program = generate(&format!("verify {number}"), &Profile::plain());
        let (findings, back) = deadline::within(CALL_LIMIT, move |steps| {
            let begin = steps.clone();
            let findings = run(&mut target, &program, move |call| begin.begin(call))
                .map_err(|why| format!("program {number}: {why}\n{program}"));
            (findings, target)
        })?;
        total.absorb(findings?);
        target = back;
    }
    println!("{}: {PROGRAMS} programs of {} calls agree with the CPU", tested.label, total.calls);
    Ok(())
}
