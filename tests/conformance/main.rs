//! Every case of crates/conformance on every backend: one test for each backend and operation.
//!
//! `CASE=gemm/m3 cargo test -p suites --test conformance` runs the cases whose path contains that text, or
//! one of several that are separated by commas; `TEST_BACKENDS=cpu` restricts the backends. On the CPU and
//! software adapters a [`Sample`] runs, unless `CASE` is given; `EVERY=1` runs every case everywhere, and
//! `SHARD=2/8` the third of eight parts. `SAMPLE=write` runs none, but chooses the cases of tests/plans.txt
//! again.

mod plans;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use backend_api::ComputeBackend;
use backend_webgpu::WebGpuBackend;
use conformance::{Case, Outcome, cases};
use libtest_mimic::{Arguments, Failed, Trial};
use suites::{BackendUnderTest, Filter, Sample, Shard, backends};

/// How many failing cases of an operation are listed.
const LISTED: usize = 20;

/// The fewest cases that there are, by what a whole run makes of its sample on each backend.
const FEWEST: usize = 15_000;

/// What has been run on one backend.
#[derive(Debug)]
struct Tally {
    backend: BackendUnderTest,
    sample: Result<Sample, String>,
    right: AtomicUsize,
    refused: AtomicUsize,
    failed: AtomicUsize,
    busy_milliseconds: AtomicU64,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let filter = Filter::from_environment();
    let all = cases();
    let checked = filter.check(all.iter().map(Case::path)).and_then(|()| Shard::from_environment());
    let shard = match checked {
        Ok(shard) => shard,
        Err(why) => {
            println!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if std::env::var(plans::VARIABLE).is_ok_and(|value| value == "write") {
        return plans::write(&all);
    }
    if let Some(unknown) = plans::unknown(&all) {
        println!("tests/plans.txt names {unknown}, which is no case: {} chooses them again", plans::COMMAND);
        return ExitCode::FAILURE;
    }
    let is_meant = |case: &Case| filter.has(&case.path()) && shard.has(&case.path());
    let cases: Vec<Case> = all.into_iter().filter(is_meant).collect();
    let cases: Arc<[Case]> = cases.into();
    let tally = |backend| Arc::new(Tally::new(backend, !filter.is_empty()));
    let tallies: Vec<Arc<Tally>> = backends().into_iter().map(tally).collect();
    let trials = tallies.iter().flat_map(|tally| trials(tally, &cases)).collect();
    let conclusion = suites::run(&arguments, trials);

    let whole = !arguments.list
        && filter.is_empty()
        && shard.is_all()
        && arguments.filter.is_none()
        && arguments.skip.is_empty()
        && !arguments.ignored;
    let mut complete = true;
    if !arguments.list {
        for tally in &tallies {
            println!("{}", tally.summary());
            complete &= !whole || tally.total() * tally.sample.as_ref().map_or(1, Sample::one_in) >= FEWEST;
        }
    }
    if !complete {
        println!("fewer than {FEWEST} cases on a backend");
    }
    if complete { conclusion.exit_code() } else { ExitCode::FAILURE }
}

/// One test for each operation, or a failing one where the backend could not be opened.
fn trials(tally: &Arc<Tally>, cases: &Arc<[Case]>) -> Vec<Trial> {
    let slug = &tally.backend.slug;
    if let Err(reason) = &tally.sample {
        let reason = reason.clone();
        return vec![Trial::test(format!("conformance/{slug}/open"), || Err(Failed::from(reason)))];
    }
    let families: BTreeSet<&'static str> = cases.iter().map(|case| case.family).collect();
    families
        .into_iter()
        .map(|family| {
            let (tally, cases) = (tally.clone(), cases.clone());
            Trial::test(format!("conformance/{slug}/{family}"), move || tally.run(family, &cases))
        })
        .collect()
}

/// Runs a case. A panic fails that case alone, so that every other one still runs.
fn attempt(case: &Case, backend: &dyn ComputeBackend) -> Result<Outcome, String> {
    match catch_unwind(AssertUnwindSafe(|| case.run(backend))) {
        Ok(outcome) => outcome.map_err(|failure| failure.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(format!("{}: panicked: {text}", case.path()))
        }
    }
}

impl Tally {
    /// Counts nothing yet; `all` has no case left out.
    fn new(backend: BackendUnderTest, all: bool) -> Self {
        let sample = match backend.backend() {
            Err(missing) => Err(missing.to_owned()),
            Ok(_) if all => Ok(Sample::all()),
            Ok(opened) => match opened.device_info() {
                Ok(device) => Sample::with_plans(&device),
                Err(error) => Err(error.to_string()),
            },
        };
        Self {
            backend,
            sample,
            right: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            busy_milliseconds: AtomicU64::new(0),
        }
    }

    /// Runs every case of an operation.
    fn run(&self, family: &str, cases: &[Case]) -> Result<(), Failed> {
        let (backend, sample) = (self.backend.backend()?, self.sample.clone()?);
        let (start, kernels) = (Instant::now(), self.kernels());
        let (mut count, mut failures) = (0, Vec::new());
        sample.run(cases.iter().filter(|case| case.family == family), |case| {
            count += 1;
            match attempt(case, backend) {
                Ok(Outcome::Right) => self.right.fetch_add(1, Ordering::Relaxed),
                // Only operands inside of an arena may pass a limit.
                Ok(Outcome::Limited) => {
                    failures.push(format!("{} passed a limit", case.path()));
                    self.failed.fetch_add(1, Ordering::Relaxed)
                }
                Ok(Outcome::Refused) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    // What needs f16 doesn't count where there is none.
                    return false;
                }
                Err(failure) => {
                    failures.push(failure);
                    self.failed.fetch_add(1, Ordering::Relaxed)
                }
            };
            true
        });
        let took = start.elapsed();
        self.busy_milliseconds.fetch_add(took.as_millis() as u64, Ordering::Relaxed);
        let slug = &self.backend.slug;
        // Kernels of operations that run at the same time are counted as well.
        let kernels = self.kernels() - kernels;
        println!("{slug}/{family}: {count} cases in {:.1} s, {kernels} kernels", took.as_secs_f64());
        if failures.is_empty() {
            return Ok(());
        }
        let (failed, selector) = (failures.len(), &self.backend.selector);
        failures.truncate(LISTED);
        let listed = failures.join("\n");
        Err(format!("{failed} of {count} cases failed with TEST_BACKENDS={selector}:\n{listed}").into())
    }

    /// Kernels that have been compiled for the backend so far.
    fn kernels(&self) -> usize {
        let webgpu = self.backend.backend().ok().and_then(|backend| backend.downcast_ref::<WebGpuBackend>());
        webgpu.map_or(0, WebGpuBackend::compiled_kernels)
    }

    fn counts(&self) -> [usize; 3] {
        [&self.right, &self.refused, &self.failed].map(|count| count.load(Ordering::Relaxed))
    }

    fn total(&self) -> usize {
        self.counts().iter().sum()
    }

    fn summary(&self) -> String {
        let [_, refused, failed] = self.counts();
        let (label, total) = (&self.backend.label, self.total());
        let sample = self.sample.as_ref().map(Sample::text).unwrap_or_default();
        let busy = self.busy_milliseconds.load(Ordering::Relaxed) as f64 / 1000.0;
        format!(
            "{label}: {total} cases{sample}, {failed} failures, {refused} refused as documented (no f16), {busy:.1} s of tests, \
             {} kernels",
            self.kernels()
        )
    }
}
