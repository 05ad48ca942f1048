//! What is known of a device's kernels after their [self-tests](super::self_test).

use std::collections::HashMap;
use std::sync::OnceLock;

use backend_api::{BackendError, BackendResult, ErrorKind};

use crate::kernels::Variant;
use crate::sync::RwLock;

/// The results of a device's self-tests.
#[derive(Debug, Default)]
pub(crate) struct SelfTests {
    known: RwLock<HashMap<Variant, Verdict>>,
    /// The most iterations of an invocation's loops, if there is a limit.
    pub(in crate::ops) iterations: OnceLock<Option<usize>>,
    /// Whether each passes, if none is tried.
    #[cfg(test)]
    all: Option<bool>,
}

/// The result of a variant's self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Right,
    Wrong,
    /// None of this many trials came to a result.
    Open(u32),
}

/// Trials without a result after which a variant isn't tried again: each may wait as long as a call may.
const MAX_TRIALS: u32 = 3;

impl Verdict {
    /// The verdict after another trial.
    fn after(self, trial: &BackendResult<()>) -> Self {
        match (trial, self) {
            (Ok(()), _) => Self::Right,
            (Err(error), Self::Open(trials)) if tells_nothing(error) && trials + 1 < MAX_TRIALS => {
                Self::Open(trials + 1)
            }
            (Err(_), _) => Self::Wrong,
        }
    }
}

/// Whether a trial ended because the device was busy, full or gone, whatever it should have shown.
pub(super) fn tells_nothing(error: &BackendError) -> bool {
    matches!(error.kind(), ErrorKind::Timeout | ErrorKind::OutOfMemory | ErrorKind::DeviceLost)
}

impl SelfTests {
    /// The results of a device that passes every self-test.
    #[cfg(test)]
    pub(in crate::ops) fn passed() -> Self {
        Self::known(true, None)
    }

    /// The results of a device that passes every self-test or none, and whose loops end after so many iterations.
    #[cfg(test)]
    pub(in crate::ops) fn known(passed: bool, iterations: Option<usize>) -> Self {
        Self { all: Some(passed), iterations: OnceLock::from(iterations), ..Self::default() }
    }

    /// Whether a test has yet to tell if a variant is right.
    pub(in crate::ops) fn is_open(&self, variant: &Variant) -> bool {
        // Nothing is tested in a page.
        if cfg!(target_family = "wasm") {
            return false;
        }
        #[cfg(test)]
        if self.all.is_some() {
            return false;
        }
        !matches!(self.known.read().get(variant), Some(Verdict::Right | Verdict::Wrong))
    }

    /// Whether the variant is right; found out by `check` at its first use.
    pub(in crate::ops) fn pass(&self, variant: &Variant, check: impl FnOnce() -> BackendResult<()>) -> bool {
        // A self-test waits for its results, which nothing can in a page.
        if cfg!(target_family = "wasm") {
            return false;
        }
        #[cfg(test)]
        if let Some(passed) = self.all {
            return passed;
        }
        let known = self.known.read().get(variant).copied();
        if let Some(known @ (Verdict::Right | Verdict::Wrong)) = known {
            return known == Verdict::Right;
        }
        // Tried without the lock: another thread may try the same, and the first with a result decides.
        let trial = check();
        if let Err(error) = &trial {
            tracing::warn!(?error, ?variant, "cooperative matrices fail on this device; doing without");
        }
        let mut known = self.known.write();
        let verdict = known.entry(*variant).or_insert(Verdict::Open(0));
        if let Verdict::Open(_) = verdict {
            *verdict = verdict.after(&trial);
        }
        *verdict == Verdict::Right
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ops::shared::iterations;
    use crate::ops::shared::self_test::{OP, compare};

    #[test]
    fn only_a_result_decides_about_a_variant() {
        let variant = iterations::variants()[0];
        let busy = || Err(BackendError::Timeout { op: OP, waited: Duration::ZERO });
        let full = || Err(BackendError::OutOfMemory { requested: 4, in_use: 0 });
        let wrong = || compare(&[Some(1)], &[Some(2)]);
        let unasked = || -> BackendResult<()> { panic!("it is decided") };

        let right = SelfTests::default();
        assert!(right.is_open(&variant), "nothing is known");
        assert!(
            !right.pass(&variant, busy) && !right.pass(&variant, full) && right.pass(&variant, || Ok(()))
        );
        assert!(right.pass(&variant, unasked) && !right.is_open(&variant));

        let broken = SelfTests::default();
        assert!(!broken.pass(&variant, full) && !broken.pass(&variant, wrong));
        assert!(!broken.pass(&variant, unasked) && !broken.is_open(&variant));

        let always_busy = SelfTests::default();
        assert!(!always_busy.pass(&variant, busy) && always_busy.is_open(&variant));
        assert!((1..MAX_TRIALS).all(|_| !always_busy.pass(&variant, busy)));
        assert!(!always_busy.pass(&variant, unasked));
    }
}
