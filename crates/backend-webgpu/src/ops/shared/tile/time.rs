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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_tiles_overlaps_with_those_before_it() {
        let rounds = |time: StepTime| [1, 2, 3, 4, 5].map(|rounds| time.of(10 * rounds, 1, 10));
        let time = StepTime::new(1100, 1700);
        assert_eq!(rounds(time), [1100, 1700, 2800, 3400, 4500]);
        assert_eq!(rounds(StepTime { last: 750, ..time }), [1100, 1700, 2450, 3400, 4150]);
        assert_eq!([0, 1, 11].map(|tiles| time.of(tiles, 3, 10)), [0, 3300, 5100]);
    }
}
