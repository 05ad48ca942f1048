//! What launchers remember of a device from call to call.

use std::any::Any;

use super::shared::kernel_override::{KernelOverride, Override};
use super::shared::pace::Pace;
use super::shared::type_map::TypeMap;
use super::shared::verdicts::SelfTests;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// What launchers remember of a device.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Which variants on cooperative matrices were found to be right.
    pub(crate) self_tests: SelfTests,
    /// How much long work is waiting to be submitted.
    pub(crate) pace: Pace,
    /// The device's compute units that a tuning text has told, or 0.
    compute_units: AtomicUsize,
    /// What one family remembers, of types that are its own.
    of_families: TypeMap,
}

impl State {
    #[cfg(test)]
    pub(in crate::ops) fn with_self_tests(self_tests: SelfTests) -> Self {
        Self { self_tests, ..Self::default() }
    }

    /// What a family remembers in a type of its own; the type's default before anything was kept in it.
    pub(crate) fn of<T: Any + Default + Send + Sync>(&self) -> &T {
        self.of_families.get()
    }

    /// The device's compute units, if a tuning text has told them.
    pub(in crate::ops) fn tuned_compute_units(&self) -> Option<usize> {
        Some(self.compute_units.load(Ordering::Relaxed)).filter(|&count| count > 0)
    }

    pub(in crate::ops) fn tune_compute_units(&self, count: usize) {
        self.compute_units.store(count, Ordering::Relaxed);
    }

    /// The kernel that a family's operations have to use, if one was asked for.
    pub(in crate::ops) fn forced<K: KernelOverride>(&self) -> Option<K> {
        self.of::<Override<K>>().get()
    }

    /// Has a family's operations use a kernel, or choose again.
    pub(crate) fn force<K: KernelOverride>(&self, kernel: Option<K>) {
        self.of::<Override<K>>().set(kernel);
    }
}
