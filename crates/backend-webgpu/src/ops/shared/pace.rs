//! When recorded work is submitted: before an operation with which the batch would take long.

use crate::recorder::Command;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Seconds above which an operation is divided, and above which recorded work is submitted.
pub(crate) const MAX_PART: f64 = 0.3;

/// Recorded work that waits for its submission, and how slow tests take the device for.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Estimated seconds of what has been recorded since the last submission.
    waiting: Mutex<f64>,
    /// Whether the next launch begins a submission.
    due: AtomicBool,
    /// Submissions that were begun because a batch was long.
    cuts: AtomicU64,
    /// The bits of an f64: the factor by which tests take the device for slower than it is.
    slowdown: AtomicU64,
    /// Halvings of every operation that can be divided, for tests.
    least_halvings: AtomicU32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            due: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
            slowdown: AtomicU64::new(1f64.to_bits()),
            least_halvings: AtomicU32::new(0),
        }
    }
}

impl Pace {
    /// Takes the device for `slowdown` times slower, and has operations halved `least_halvings` times, for tests.
    #[cfg(any(test, feature = "test-hooks"))]
    pub(crate) fn pretend(&self, slowdown: f64, least_halvings: u32) {
        self.slowdown.store(slowdown.to_bits(), Ordering::Relaxed);
        self.least_halvings.store(least_halvings, Ordering::Relaxed);
    }

    /// How often recorded work was submitted because it was long.
    #[cfg(any(test, feature = "test-hooks"))]
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }

    /// Whether what was recorded before has to be submitted before what is recorded next.
    pub(crate) fn take_due(&self) -> bool {
        let is_due = self.due.swap(false, Ordering::Relaxed);
        self.cuts.fetch_add(u64::from(is_due), Ordering::Relaxed);
        is_due
    }

    /// Has the next launch begin a submission if one of `commands` was to, which are discarded.
    pub(crate) fn give_back(&self, commands: &[Command]) {
        if commands.iter().any(|command| command.begins_batch) {
            self.due.store(true, Ordering::Relaxed);
        }
    }

    /// Adds the estimate of work that is launched next.
    pub(crate) fn add(&self, seconds: f64) {
        let mut waiting = self.waiting.lock();
        let is_due = *waiting > 0.0 && *waiting + seconds > MAX_PART;
        *waiting = if is_due { seconds } else { *waiting + seconds };
        self.due.fetch_or(is_due, Ordering::Relaxed);
    }

    pub(super) fn slowdown(&self) -> f64 {
        f64::from_bits(self.slowdown.load(Ordering::Relaxed))
    }

    pub(super) fn is_long(&self, seconds: f64, halvings: u32) -> bool {
        self.slowdown() * seconds > MAX_PART || halvings < self.least_halvings.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_work_is_submitted_once_it_adds_up() {
        let pace = Pace::default();
        let due = [0.1, 0.1, 0.2, 0.05, 5.0, 0.1].map(|seconds| {
            pace.add(seconds);
            pace.take_due()
        });
        assert_eq!(due, [false, false, true, false, true, true]);
        assert_eq!(pace.cuts(), 3);
    }

    #[test]
    fn what_takes_longer_than_a_part_is_long() {
        let pace = Pace::default();
        let long = |halvings| [0.3, 0.31].map(|seconds| pace.is_long(seconds, halvings));
        assert_eq!(long(0), [false, true]);
        pace.pretend(2.0, 0);
        assert_eq!([0.15, 0.16].map(|seconds| pace.is_long(seconds, 0)), [false, true]);
        pace.pretend(1.0, 2);
        assert_eq!([0, 1, 2].map(|halvings| pace.is_long(0.0, halvings)), [true, true, false]);
    }

    #[test]
    fn work_that_nothing_waits_before_needs_no_submission() {
        let pace = Pace::default();
        pace.add(5.0);
        assert!(!pace.take_due());
        pace.add(0.0);
        assert!(pace.take_due() && !pace.take_due());
        // Exactly a part.
        [0.25, 0.05].into_iter().for_each(|seconds| pace.add(seconds));
        assert!(!pace.take_due() && pace.cuts() == 1);
    }
}
