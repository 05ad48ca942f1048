//! Random sizes and handles' companions.

use backend_api::DType;

use crate::rng::Rng;

/// Where sizes wrap, and where grids, 32-bit indices and byte counts do.
const EXTREMES: [usize; 16] = [
    65_535,
    65_536,
    65_535 * 256 - 1,
    65_535 * 256,
    65_535 * 256 + 1,
    (1 << 30) + 1,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    (1 << 32) + 1,
    1 << 40,
    1 << 62,
    usize::MAX / 2 + 1,
    usize::MAX - 1,
    usize::MAX,
];

pub(super) fn size(rng: &mut Rng) -> usize {
    match rng.below(20) {
        0 => rng.pick(&EXTREMES),
        1 | 2 => rng.below(40),
        _ => rng.below(5),
    }
}

pub(super) fn sizes<const N: usize>(rng: &mut Rng) -> [usize; N] {
    std::array::from_fn(|_| size(rng))
}

/// Up to four extents.
pub(super) fn shape(rng: &mut Rng) -> Vec<usize> {
    (0..rng.below(5)).map(|_| size(rng)).collect()
}

pub(super) fn factor(rng: &mut Rng) -> f64 {
    rng.pick(&[0.0, 1.0, -0.5, 1e300, f64::NAN, f64::INFINITY])
}

pub(super) fn dtype(rng: &mut Rng) -> DType {
    let all = DType::ALL;
    if rng.one_in(3) { rng.pick(&all) } else { DType::F32 }
}

pub(super) fn maybe<T>(rng: &mut Rng, value: T) -> Option<T> {
    if rng.one_in(3) { Some(value) } else { None }
}
