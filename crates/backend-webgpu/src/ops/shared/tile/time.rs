//! How long tiles take.

/// Nanoseconds that a workgroup takes for a step of its tile on an H200 (device/profile.rs); what matters is
/// how those of different tiles relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StepTime {
    /// When it has a compute unit for itself.
    alone: usize,
    /// When two share one, for both.
    paired: usize,
    /// When it is the last of several that a compute unit works on, and the ones before it overlap with it.
    last: usize,
}

impl StepTime {
    pub(crate) const fn new(alone: usize, paired: usize) -> Self {
        Self { alone, paired, last: alone }
    }

    /// The time of tiles of which a compute unit has room for more than two, so that the last of several takes less than alone.
    pub(super) const fn with_last(self, last: usize) -> Self {
        Self { last, ..self }
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

    /// [`of`](Self::of) tiles of so many steps, and behind them others of fewer, which go where the last round of the longer
    /// ones leaves places: one after the other where there are more than places.
    pub(crate) fn of_longer_and_shorter(
        self,
        [longer, shorter]: [usize; 2],
        [steps, fewer]: [usize; 2],
        compute_units: usize,
    ) -> usize {
        // Two on each unit at a time.
        let places = 2 * compute_units;
        let (before, rest) = (longer / places * places, longer % places);
        if rest > 0 && rest + shorter.min(places) <= places {
            // All of the last round begin at once, spread over the units.
            let single = if before == 0 { self.alone } else { self.last };
            let (paired, single) = match (rest > compute_units, rest + shorter > compute_units) {
                (true, _) => (steps.saturating_mul(self.paired), 0),
                (false, true) => (fewer.saturating_mul(self.paired), (steps - fewer).saturating_mul(single)),
                (false, false) => (0, steps.saturating_mul(single)),
            };
            return self.of(before, steps, compute_units).saturating_add(paired).saturating_add(single);
        }
        let left = longer.checked_next_multiple_of(places).map_or(0, |all| all - longer);
        let in_each = steps / fewer.max(1);
        let filled = shorter.min(left.saturating_mul(in_each));
        let with_filled = longer.saturating_add(filled.div_ceil(in_each.max(1)));
        let all_longer = self.of(with_filled, steps, compute_units);
        all_longer.saturating_add(self.of(shorter - filled, fewer, compute_units))
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
        assert_eq!(rounds(time.with_last(750)), [1100, 1700, 2450, 3400, 4150]);
        assert_eq!([0, 1, 11].map(|tiles| time.of(tiles, 3, 10)), [0, 3300, 5100]);
    }

    #[test]
    fn short_tiles_take_places_that_are_left() {
        let time = StepTime::new(1100, 1700).with_last(750);
        let of = |longer, shorter| time.of_longer_and_shorter([longer, shorter], [10, 5], 10);
        // Beside half as many, on units of their own, and on units where a long one runs.
        assert_eq!([of(5, 0), of(5, 5), of(5, 15)], [11_000, 11_000, 5 * 1700 + 5 * 1100]);
        // In the places that 16 long ones leave, four at once or twice four; what comes then begins behind them.
        assert_eq!([of(16, 4), of(16, 8), of(16, 9)], [17_000, 17_000, 17_000 + 5 * 1100]);
        assert_eq!([of(20, 0), of(20, 5), of(25, 5)], [17_000, 17_000 + 5 * 1100, 17_000 + 7500]);
        assert_eq!(of(usize::MAX, usize::MAX), usize::MAX);
    }
}
