//! Lengths of pieces that a long sum or loop may be cut into, for workgroups of their own.

/// Counts of quarters of a piece: few pieces, of one length or with a last one of a quarter, a half or three quarters of it.
pub(in crate::ops) const FEW: std::ops::RangeInclusive<usize> = 5..=32;

/// How long pieces of `total` are, in multiples of `unit`, where it has so many quarters of a piece. A length that several
/// counts have comes once.
pub(in crate::ops) fn piece_lengths(
    total: usize,
    unit: usize,
    quarters: impl Iterator<Item = usize>,
) -> impl Iterator<Item = usize> {
    let all = total.saturating_mul(4);
    let mut last = None;
    let lengths = quarters.map(move |count| all.div_ceil(count).next_multiple_of(unit));
    lengths.filter(move |&length| last.replace(length) != Some(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_once_and_in_whole_units() {
        let lengths = |total, unit| piece_lengths(total, unit, FEW).collect::<Vec<_>>();
        assert_eq!(lengths(24, 1), [20, 16, 14, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3]);
        assert_eq!(lengths(300, 64), [256, 192, 128, 64]);
        assert_eq!(lengths(0, 64), [0]);
    }
}
