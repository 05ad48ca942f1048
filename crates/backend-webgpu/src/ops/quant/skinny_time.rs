//! Estimated times of products on tensor cores by `quant/skinny_cooperative` in tiles of 16 or 32 rows.

use backend_api::quant::QuantFormat;

use super::formats::has_half_blocks;
use crate::ops::shared::tensor_cores::FRAGMENT;

/// A workgroup, by times on an H200 tell: no driver says how many registers it takes.
struct Workgroup {
    subgroups: usize,
    /// How many of them a compute unit runs at once, with tiles of 16 rows of A and of 32.
    at_once: [usize; 2],
    /// Nanoseconds of a turn of all of these by Q4_0, in which each of their subgroups multiplies a unit.
    turns: [usize; 2],
    /// Nanoseconds of adding up what the subgroups have of a tile.
    sums: usize,
}

const WORKGROUPS: [Workgroup; 3] = [
    Workgroup { subgroups: 4, at_once: [6, 5], turns: [1700, 2320], sums: 800 },
    Workgroup { subgroups: 8, at_once: [3, 2], turns: [1700, 2150], sums: 2200 },
    Workgroup { subgroups: 16, at_once: [1, 1], turns: [1700, 2150], sums: 3000 },
];

/// Nanoseconds of a launch.
const LAUNCH: usize = 1500;

/// Time of a format's turns in percent of Q4_0's.
const fn percent(format: QuantFormat) -> usize {
    match format {
        QuantFormat::Q4_0 => 100,
        _ if has_half_blocks(format) => 145,
        _ => 120,
    }
}

/// The subgroups of a workgroup that is fastest for tiles of so many rows of A, of which a product has `tiles` with so many units of
/// a row each, and the nanoseconds that it takes.
pub(super) fn fastest(
    format: QuantFormat,
    rows: usize,
    [tiles, units]: [usize; 2],
    compute_units: usize,
) -> (usize, usize) {
    let size = usize::from(rows > FRAGMENT);
    let times = WORKGROUPS.map(|Workgroup { subgroups, at_once, turns, sums }| {
        let turn = turns[size] * percent(format) / 100;
        let rounds = tiles.div_ceil(at_once[size].saturating_mul(compute_units).max(1));
        let of_round = units.div_ceil(subgroups).saturating_mul(turn).saturating_add(sums);
        (subgroups, rounds.saturating_mul(of_round).saturating_add(LAUNCH))
    });
    let [first, rest @ ..] = times;
    rest.into_iter().fold(first, |best, other| if other.1 < best.1 { other } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::h200;

    /// Microseconds measured on an H200 of products by 4096 × 4096 (256 tiles of columns, 32 units), 6144 × 4096, 28672 × 4096 and
    /// 4096 × 14336 with the workgroup that was the fastest.
    #[test]
    fn estimates_are_near_what_was_measured() {
        let cases = [
            (QuantFormat::Q4_0, 32, [256, 32], 8, 12.5),
            (QuantFormat::Q4_0, 32, [384, 32], 4, 18.3),
            (QuantFormat::Q4_0, 32, [1792, 32], 4, 61.1),
            (QuantFormat::Q4_0, 32, [2 * 1792, 32], 4, 111.4),
            (QuantFormat::Q4_0, 32, [256, 112], 8, 34.2),
            (QuantFormat::Q4_0, 32, [3 * 256, 112], 8, 90.2),
            (QuantFormat::Q4_0, 16, [384, 32], 8, 13.8),
            (QuantFormat::Q4_0, 16, [1792, 32], 4, 43.4),
            (QuantFormat::Q4_K, 32, [2 * 1792, 32], 4, 131.4),
            (QuantFormat::Q4_K, 16, [256, 112], 8, 26.5),
            (QuantFormat::Q6_K, 32, [2 * 256, 112], 8, 84.8),
            (QuantFormat::Q8_0, 32, [2 * 1792, 32], 4, 123.7),
        ];
        for (format, rows, sizes, subgroups, measured) in cases {
            let (chosen, time) = fastest(format, rows, sizes, h200::COMPUTE_UNITS);
            let ratio = time as f64 / 1000.0 / measured;
            assert_eq!(chosen, subgroups, "{format} {rows} rows {sizes:?}");
            assert!((0.7..1.25).contains(&ratio), "{format} {rows} rows {sizes:?}: {ratio}");
        }
    }

    #[test]
    fn any_size_has_a_time() {
        let (_, time) = fastest(QuantFormat::Q6_K, 32, [usize::MAX; 2], 1);
        assert_eq!(time, usize::MAX);
        assert!(fastest(QuantFormat::Q4_0, 16, [1, 1], 0).1 > 0);
    }
}
