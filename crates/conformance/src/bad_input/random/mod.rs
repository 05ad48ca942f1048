//! Calls with random arguments: none panics, and one succeeds only if its footprint fits.
//!
//! The judge is the contract's own: a descriptor's `operands` and [`operand::check`](backend_api::operand::check),
//! asked with what this module knows of its buffers.

mod calls;
mod draw;
mod elementwise;
mod images;
mod memory;
mod pool;
mod products;
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

type Make<'a> = Box<dyn FnOnce(&dyn ComputeBackend) -> BackendResult<()> + 'a>;

/// A call with its arguments chosen.
struct Call<'a> {
    /// The method and its arguments, to be called again by hand.
    label: String,
    /// What the contract says of it.
    verdict: BackendResult<()>,
    /// Makes it.
    make: Make<'a>,
}

/// Makes `calls` calls with arguments that depend only on `seed`. `before` is told of each, so that a caller can say
/// which one never came back.
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
    for index in 0..calls {
        let call = calls::random(&mut rng, &pool);
        before(&call.label);
        report.calls += 1;
        let (label, verdict) = (call.label, call.verdict);
        let result = catch_unwind(AssertUnwindSafe(|| (call.make)(backend)));
        let outcome = match result {
            Err(_) => Err("it panicked".to_owned()),
            Ok(result) => {
                report.accepted += usize::from(result.is_ok());
                judge(&verdict, &result)
            }
        };
        // A failed wait would otherwise be told of a later call.
        let outcome = outcome.and_then(|()| match index % 500 {
            499 => backend.synchronize().map_err(|error| format!("synchronize after it: {error:?}")),
            _ => Ok(()),
        });
        if let Err(why) = outcome {
            report.failures.push(format!("{label}: {why}"));
        }
        if report.failures.len() >= 100 {
            break;
        }
    }
    drop(pool);
    let after = backend.memory_stats().handles;
    if after != handles {
        report.failures.push(format!("{handles} handles before all calls, {after} after"));
    }
    report
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
