//! How long tiles take.

/// Nanoseconds that a workgroup takes for a step of its tile on an H200 (device/profile.rs); what matters is
/// how those of different tiles relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepTime {
    /// When it has a compute unit for itself.
    pub(crate) alone: usize,
    /// When two share one, for both.
    pub(crate) paired: usize,
    /// When it is the last of several that a compute unit works on, and the ones before it overlap with it.
    pub(crate) last: usize,
}

impl StepTime {
    pub(crate) const fn new(alone: usize, paired: usize) -> Self {
        Self { alone, paired, last: alone }
    }

    /// Nanoseconds of `tiles` tiles of so many steps on a device of so many compute units.
    pub(crate) fn of(self, tiles: usize, steps: usize, compute_units: usize) -> usize {
        let rounds = tiles.div_ceil(compute_units);
        let rest = match rounds {
            1 => self.alone,
            _ => rounds % 2 * self.last,
        };
        let round = (rounds / 2).saturating_mul(self.paired).saturating_add(rest);
        steps.saturating_mul(round)
    }
}
