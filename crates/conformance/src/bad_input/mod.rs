//! Calls that must fail, and what must still hold after each.
//!
//! Every operation has a call that succeeds ([`Operation`]). From it come the bad calls: each handle in turn
//! is unknown, freed, 0, another backend's, too short, misaligned, or overlaps the output; and each size,
//! stride, shape, axis and element type is wrong in the ways tabled with the operation. After each bad call
//! its error is compared with the one expected, field by field where the contract fixes them, no byte of any
//! buffer has changed, no handle has appeared or gone, and the good call right after succeeds with the right
//! numbers.
//!
//! What is undefined behaviour in a vendor's library is a status here; this table is that promise, spelled
//! out.

mod attention;
mod backward;
mod broadcast;
mod channels;
mod conv;
mod conv2d;
mod elementwise;
mod expect;
mod extremes;
mod fixture;
mod gather;
mod gemm;
mod graphs;
mod matmul;
mod memory;
mod movement;
mod operation;
mod pool;
mod quant;
mod random;
mod reduce;
mod rope;
mod rows;
mod spoil;
mod strided;
mod window;

use std::panic::{AssertUnwindSafe, catch_unwind};

use backend_api::{BackendResult, ComputeBackend, ErrorKind};

pub use expect::Expect;
pub use fixture::Handles;
pub use operation::{Case, Operation, Role, Slot};
pub use random::{RandomReport, random_arguments};

use fixture::Fixture;

/// What a run found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Bad calls made.
    pub calls: usize,
    /// Calls that didn't go as they must, one line each.
    pub failures: Vec<String>,
}

impl Report {
    /// Adds what another run found.
    pub fn absorb(&mut self, other: Self) {
        self.calls += other.calls;
        self.failures.extend(other.failures);
    }

    fn record(&mut self, label: &str, outcome: Result<(), String>) {
        self.calls += 1;
        if let Err(why) = outcome {
            self.failures.push(format!("{label}: {why}"));
        }
    }
}

/// Every operation of the contract with its bad calls.
#[must_use]
pub fn operations() -> Vec<Operation> {
    [
        gemm::operations(),
        matmul::operations(),
        conv2d::operations(),
        conv::operations(),
        pool::operations(),
        attention::operations(),
        elementwise::operations(),
        strided::operations(),
        broadcast::operations(),
        movement::operations(),
        rows::operations(),
        reduce::operations(),
        channels::operations(),
        backward::operations(),
        rope::operations(),
        gather::operations(),
        quant::operations(),
        memory::operations(),
        graphs::operations(),
        extremes::operations(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// All bad calls of all operations. `other` is a second backend, of any kind, whose handles are foreign to
/// the first.
pub fn run(backend: &dyn ComputeBackend, other: &dyn ComputeBackend) -> Report {
    let mut report = Report::default();
    for operation in operations() {
        report.absorb(run_operation(backend, other, &operation));
    }
    report
}

/// All bad calls of one operation.
///
/// On a device without f16, the good call on f16 may be `Unsupported`, and one with extreme sizes may pass a
/// `Limit`; then it is the only bad call, and must have changed nothing.
pub fn run_operation(
    backend: &dyn ComputeBackend,
    other: &dyn ComputeBackend,
    operation: &Operation,
) -> Report {
    let mut report = Report::default();
    let label = &operation.label;
    let fixture = match Fixture::new(backend, other, operation) {
        Ok(fixture) => fixture,
        Err(error) => {
            report.record(label, Err(format!("no fixture: {error}")));
            return report;
        }
    };
    let has_f16 = backend.capabilities().is_ok_and(|capabilities| capabilities.f16);
    let may_be_refused = match (operation.needs_f16() && !has_f16, operation.may_pass_limits) {
        (true, _) => Some(ErrorKind::Unsupported),
        (false, true) => Some(ErrorKind::Limit),
        (false, false) => None,
    };
    match (fixture.call(), may_be_refused) {
        (Err(error), Some(kind)) if error.kind() == kind => {
            report.record(label, fixture.check_unchanged());
            return report;
        }
        (first, _) => {
            let first = first.map_err(|error| format!("it failed: {error:?}"));
            let outcome = first.and_then(|()| fixture.check_result());
            report.record(&format!("{label}, the good call first"), outcome);
        }
    }
    for case in &operation.cases {
        let outcome = attempt(&fixture, &case.expect, || (case.call)(backend, fixture.handles()));
        report.record(&format!("{label}, {}", case.name), outcome);
    }
    for mut fault in spoil::faults(operation) {
        let outcome = spoil::apply(&fixture, &mut fault).and_then(|spoiled| {
            let call = || (operation.call)(backend, spoiled.handles());
            attempt(&fixture, &fault.expect, call).and_then(|()| spoiled.check_unchanged())
        });
        report.record(&format!("{label}, {}", fault.name), outcome);
    }
    report
}

/// One bad call and all that must hold after it.
fn attempt(
    fixture: &Fixture<'_>,
    expect: &Expect,
    call: impl FnOnce() -> BackendResult<()>,
) -> Result<(), String> {
    let handles = fixture.backend().memory_stats().handles;
    let result = catch_unwind(AssertUnwindSafe(call)).map_err(|_| "it panicked".to_owned())?;
    expect.compare(&result)?;
    let after = fixture.backend().memory_stats().handles;
    if after != handles {
        return Err(format!("{handles} handles were live before it, {after} after it"));
    }
    fixture.check_unchanged()?;
    fixture.check_good_call()
}
