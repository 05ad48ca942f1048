//! Estimated times of products on tensor cores by `quant/skinny_cooperative` in tiles of 32 rows.

use backend_api::quant::QuantFormat;

use super::formats::has_half_blocks;

/// A workgroup for tiles of 32 × 16 results, as times on an H200 tell: no driver says how many registers it takes.
struct Workgroup {
    /// Subgroups that share k.
    subgroups: usize,
    /// Workgroups that a compute unit runs at once.
    at_once: usize,
    /// Nanoseconds in which each subgroup of all of these multiplies a unit of Q4_0.
    iteration: usize,
    /// Nanoseconds of adding up what the subgroups have of a tile.
    sums: usize,
}

const WORKGROUPS: [Workgroup; 3] = [
    Workgroup { subgroups: 4, at_once: 5, iteration: 2320, sums: 800 },
    Workgroup { subgroups: 8, at_once: 2, iteration: 2150, sums: 2200 },
    Workgroup { subgroups: 16, at_once: 1, iteration: 2150, sums: 3000 },
];

/// Nanoseconds of a launch.
const LAUNCH: usize = 1500;

/// Time of a format's iterations in percent of Q4_0's.
const fn percent(format: QuantFormat) -> usize {
    match format {
        QuantFormat::Q4_0 => 100,
        _ if has_half_blocks(format) => 145,
        _ => 120,
    }
}

/// The subgroups of the fastest workgroup for a product of so many tiles, with rows of so many units, and the nanoseconds that it
/// takes.
pub(super) fn fastest(
    format: QuantFormat,
    [tiles, units]: [usize; 2],
    compute_units: usize,
) -> (usize, usize) {
    let times = WORKGROUPS.map(|Workgroup { subgroups, at_once, iteration, sums }| {
        let rounds = tiles.div_ceil(compute_units.saturating_mul(at_once).max(1));
        let iterations = units.div_ceil(subgroups).saturating_mul(iteration * percent(format) / 100);
        (subgroups, rounds.saturating_mul(iterations.saturating_add(sums)).saturating_add(LAUNCH))
    });
    let [first, rest @ ..] = times;
    rest.into_iter().fold(first, |best, other| if other.1 < best.1 { other } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::h200;

    /// Microseconds of products on an H200, by the workgroup that was the fastest: by 4096 × 4096 (256 tiles for each 32 rows, of 32
    /// units), 6144 × 4096, 28672 × 4096 and 4096 × 14336.
    #[test]
    fn estimates_are_near_what_was_measured() {
        for (format, sizes, subgroups, measured) in [
            (QuantFormat::Q4_0, [256, 32], 8, 12.5),
            (QuantFormat::Q4_0, [384, 32], 4, 18.3),
            (QuantFormat::Q4_0, [1792, 32], 4, 61.1),
            (QuantFormat::Q4_0, [2 * 1792, 32], 4, 111.4),
            (QuantFormat::Q4_0, [256, 112], 8, 34.2),
            (QuantFormat::Q4_0, [3 * 256, 112], 8, 90.2),
            (QuantFormat::Q4_K, [2 * 1792, 32], 4, 131.4),
            (QuantFormat::Q6_K, [2 * 256, 112], 8, 84.8),
            (QuantFormat::Q8_0, [2 * 1792, 32], 4, 123.7),
        ] {
            let (chosen, time) = fastest(format, sizes, h200::COMPUTE_UNITS);
            let ratio = time as f64 / 1000.0 / measured;
            assert_eq!(chosen, subgroups, "{format} {sizes:?}");
            assert!((0.8..1.2).contains(&ratio), "{format} {sizes:?}: {ratio}");
        }
    }

    #[test]
    fn any_size_has_a_time() {
        assert_eq!(fastest(QuantFormat::Q6_K, [usize::MAX; 2], 1).1, usize::MAX);
        assert!(fastest(QuantFormat::Q4_0, [1, 1], 0).1 > 0);
    }
}
