//! Products of activations that are rounded to 8 bits with quantised weights.

use backend_api::MathMode;
use backend_api::desc::QuantMatmulDesc;
use backend_api::quant::{QuantRow, QuantScale, UNIT};
use pulp::{Simd, WithSimd};

/// Rows of A for which a unit of weights is read once.
const ROWS: usize = 16;

/// Activations that share a scale, and of them the half that share one of the weights.
const BLOCK: usize = 32;
const HALF: usize = 16;
const HALVES: usize = UNIT / HALF;

/// Blocks with smaller activations count as zeros: their scales would be subnormal.
const SMALLEST: f32 = f32::from_bits((127 - 119) << 23);

/// Whether a product has activations and they are rounded.
pub(super) fn rounds(desc: &QuantMatmulDesc) -> bool {
    desc.math == MathMode::Int8 && desc.b.format.takes_int8() && desc.k() > 0
}

/// A unit of a row of A, and for each half block the scale and the sum of its integers.
#[derive(Clone, Debug)]
struct Unit {
    quants: [i8; UNIT],
    scales: [f32; HALVES],
    sums: [f32; HALVES],
}

impl Unit {
    /// Up to 128 activations, zeros behind them.
    fn new(activations: &[f32]) -> Self {
        let mut unit = Self { quants: [0; UNIT], scales: [0.0; HALVES], sums: [0.0; HALVES] };
        for (b, block) in activations.chunks(BLOCK).enumerate() {
            let scale = round(block, &mut unit.quants[b * BLOCK..]);
            unit.scales[2 * b..2 * b + 2].fill(scale);
        }
        for (sum, half) in unit.sums.iter_mut().zip(unit.quants.as_chunks::<HALF>().0) {
            *sum = half.iter().map(|&q| i32::from(q)).sum::<i32>() as f32;
        }
        unit
    }
}

/// Rounds a block to multiples of its scale, which is returned: NaN if not all of it is finite.
fn round(block: &[f32], quants: &mut [i8]) -> f32 {
    if !block.iter().all(|x| x.is_finite()) {
        return f32::NAN;
    }
    let largest = block.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    if largest < SMALLEST {
        return 0.0;
    }
    let scale = largest / 127.0;
    quants.iter_mut().zip(block).for_each(|(q, x)| *q = (x / scale).round_ties_even() as i8);
    scale
}

/// The rows of A, rounded.
#[derive(Debug)]
pub(super) struct Rounded {
    units: Vec<Unit>,
    /// Units of a row.
    row: usize,
    k: usize,
}

impl Rounded {
    /// `m` rows of `k` activations, the first of each `lda` after that of the one before.
    pub(super) fn new(a: &[f32], [m, k, lda]: [usize; 3]) -> Self {
        let rows = (0..m).flat_map(|i| a[i * lda..][..k].chunks(UNIT));
        Self { units: rows.map(Unit::new).collect(), row: k.div_ceil(UNIT), k }
    }
}

/// The products of a row of B with the rows of A.
pub(super) struct Int8Rows<'a> {
    pub(super) row: QuantRow<'a>,
    pub(super) a: &'a Rounded,
    pub(super) sums: &'a mut [f32],
}

impl WithSimd for Int8Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { row, a, sums } = self;
        for (sums, units) in sums.chunks_mut(ROWS).zip(a.units.chunks(ROWS * a.row)) {
            multiply(row, a, units, sums);
        }
    }
}

/// Up to 16 rows of A.
#[inline(always)]
fn multiply(row: QuantRow<'_>, a: &Rounded, units: &[Unit], sums: &mut [f32]) {
    let mut quants = [0; UNIT];
    // Partial sums side by side.
    let mut lanes = [[0.0f32; HALVES]; ROWS];
    for number in 0..a.row {
        let scales = row.integers(number, &mut quants);
        // What lies in the padding has any scale.
        let halves = (a.k - number * UNIT).div_ceil(HALF).min(HALVES);
        let weights = quants.as_chunks::<HALF>().0;
        for (lanes, unit) in lanes.iter_mut().zip(units[number..].iter().step_by(a.row)) {
            let inputs = unit.quants.as_chunks::<HALF>().0;
            for h in 0..halves {
                let products = weights[h].iter().zip(&inputs[h]).map(|(&w, &x)| i32::from(w) * i32::from(x));
                let (dot, sum) = (products.sum::<i32>() as f32, unit.sums[h]);
                let QuantScale { scale, zero, min } = scales[h];
                lanes[h] += unit.scales[h] * (scale * (dot - zero * sum) - min * sum);
            }
        }
    }
    for (sum, lanes) in sums.iter_mut().zip(lanes) {
        *sum = lanes.iter().sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_are_rounded_to_the_nearest_multiple_of_a_127th_of_the_largest() {
        let mut block = [0.0; BLOCK];
        block[..6].copy_from_slice(&[-254.0, 3.0, 5.0, 4.9, -1.1, 254.0]);
        let mut quants = [0; UNIT];
        assert_eq!(round(&block, &mut quants), 2.0);
        assert_eq!(quants[..7], [-127, 2, 2, 2, -1, 127, 0]);
        let unit = Unit::new(&[&block[..], &[1.0, f32::NAN], &[0.0; 40]].concat());
        assert_eq!((unit.scales[0], unit.scales[1], unit.sums[0]), (2.0, 2.0, 5.0));
        assert!(unit.scales[2].is_nan() && unit.scales[3].is_nan());
        assert_eq!(unit.scales[4..], [0.0; 4]);
    }

    #[test]
    fn tiny_activations_are_zeros_and_the_largest_ones_stay_finite() {
        let mut quants = [0; UNIT];
        assert_eq!(SMALLEST, 2f32.powi(-119));
        assert_eq!(round(&[SMALLEST / 2.0, f32::from_bits(1)], &mut quants), 0.0);
        assert!(round(&[SMALLEST], &mut quants) >= f32::MIN_POSITIVE);
        assert_eq!(quants[0], 127);
        assert!(round(&[f32::MIN, 1.0], &mut quants).is_finite());
        assert_eq!(quants[..2], [-127, 0]);
    }
}
