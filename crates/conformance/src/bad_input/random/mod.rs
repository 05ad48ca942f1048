//! Calls with random arguments: none panics, one succeeds exactly if its footprint fits, and one that fails
//! changes nothing.
//!
//! The judge is the contract's own: a descriptor's `operands` and
//! [`operand::check`](backend_api::support::check), asked with what this module knows of its buffers.

mod calls;
mod draw;
mod elementwise;
mod images;
mod memory;
mod movement;
mod pool;
mod products;
mod quant;
mod rows;

use std::panic::{AssertUnwindSafe, catch_unwind};

use backend_api::{BackendResult, ComputeBackend, ErrorKind};

use crate::rng::Rng;
use pool::Pool;

/// What random calls came to.
#[derive(Clone, Debug, Default)]
pub struct RandomReport {
    /// Calls made.
    pub calls: usize,
    /// Calls that succeeded.
    pub accepted: usize,
    /// Calls that went wrong, one line each, the first hundred.
    pub failures: Vec<String>,
}

type Make<'a> = Box<dyn Fn(&dyn ComputeBackend) -> BackendResult<()> + 'a>;

/// A call with its arguments chosen.
struct Call<'a> {
    /// The method and its arguments, to be called again by hand.
    label: String,
    /// What the contract says of it.
    verdict: BackendResult<()>,
    /// Makes it.
    make: Make<'a>,
}

/// Makes `calls` calls with arguments that depend only on `seed`. `before` is told of each, so that a caller
/// can say which one never came back.
pub fn random_arguments(
    backend: &dyn ComputeBackend,
    seed: &str,
    calls: usize,
    before: &dyn Fn(&str),
) -> RandomReport {
    let mut report = RandomReport::default();
    let handles = backend.memory_stats().handles;
    let pool = match Pool::new(backend) {
        Ok(pool) => pool,
        Err(error) => {
            report.failures.push(format!("no buffers: {error}"));
            return report;
        }
    };
    let mut rng = Rng::from_name(seed);
    let mut rest = calls;
    while rest > 0 && report.failures.len() < MOST_FAILURES {
        let group = rest.min(GROUP);
        rest -= group;
        let calls = (0..group).map(|_| calls::random(&mut rng, &pool)).collect();
        run_group(backend, &pool, calls, before, &mut report);
    }
    drop(pool);
    let after = backend.memory_stats().handles;
    if after != handles {
        report.failures.push(format!("{handles} handles before all calls, {after} after"));
    }
    report
}

/// Calls between two looks at the memory. Those that must fail are made last, and together.
const GROUP: usize = 250;

/// Failures after which no more calls are made.
const MOST_FAILURES: usize = 100;

fn run_group(
    backend: &dyn ComputeBackend,
    pool: &Pool<'_>,
    calls: Vec<Call<'_>>,
    before: &dyn Fn(&str),
    report: &mut RandomReport,
) {
    let (good, mut bad): (Vec<_>, Vec<_>) = calls.into_iter().partition(|call| call.verdict.is_ok());
    for call in good {
        // What the device refuses must have changed nothing either: it is made again, among the bad ones.
        if make(backend, &call, before, report).is_some_and(|result| result.is_err()) {
            bad.push(call);
        }
    }
    // A failed wait would otherwise be told of a later call.
    if let Err(error) = backend.synchronize() {
        report.failures.push(format!("synchronize after a group of calls: {error:?}"));
    }
    let handles = backend.memory_stats().handles;
    let Some(memory) = pool.bytes(report) else { return };
    for call in &bad {
        make(backend, call, before, report);
    }
    if pool.bytes(report).is_some_and(|now| now != memory) {
        let culprit = bad.iter().find(|call| {
            let before = pool.bytes(report);
            _ = (call.make)(backend);
            pool.bytes(report) != before
        });
        let label = culprit.map_or("one of the calls that failed", |call| &call.label);
        report.failures.push(format!("{label}: it failed, and changed memory"));
    }
    let after = backend.memory_stats().handles;
    if after != handles {
        report.failures.push(format!("{handles} handles before calls that failed, {after} after"));
    }
}

/// Makes a call and judges it; its result, unless it panicked.
fn make(
    backend: &dyn ComputeBackend,
    call: &Call<'_>,
    before: &dyn Fn(&str),
    report: &mut RandomReport,
) -> Option<BackendResult<()>> {
    before(&call.label);
    report.calls += 1;
    let result = catch_unwind(AssertUnwindSafe(|| (call.make)(backend))).ok();
    let outcome = match &result {
        None => Err("it panicked".to_owned()),
        Some(result) => {
            report.accepted += usize::from(result.is_ok());
            judge(&call.verdict, result)
        }
    };
    if let Err(why) = outcome {
        report.failures.push(format!("{}: {why}", call.label));
    }
    result
}

fn judge(verdict: &BackendResult<()>, result: &BackendResult<()>) -> Result<(), String> {
    match (verdict, result) {
        (Ok(()), Ok(())) => Ok(()),
        // A device may refuse what the contract allows: no f16, or a size beyond its limits.
        (_, Err(error)) if matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Limit) => Ok(()),
        (Err(expected), Err(got)) if expected.kind() == got.kind() => Ok(()),
        (expected, got) => Err(format!("got {got:?}, the contract says {expected:?}")),
    }
}
