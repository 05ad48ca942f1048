//! Products of activations that are rounded to 8 bits with quantised weights.

use std::array::from_fn;

use backend_api::MathMode;
use backend_api::desc::QuantMatmulDesc;
use backend_api::quant::{QuantFormat, QuantLanes, QuantLayout, UNIT};
use bytemuck::Zeroable;
use pulp::{Arch, Simd, WithSimd};

use super::dot_int8::{Dot, Portable};
use crate::parallel::Cores;
use crate::room::{NoRoom, zeros};

/// Rows of A for which a unit of weights is unpacked once.
const ROWS: usize = 32;

/// Rows of B for which a unit of [`ROWS`] rows of A stays in the first cache.
const COLUMNS: usize = 8;

/// Activations that share a scale.
const BLOCK: usize = 32;
const BLOCKS: usize = UNIT / BLOCK;

/// Units of activations in the share of one thread.
const GRAIN: usize = 128;

/// Blocks with smaller activations count as zeros: their scales would be subnormal.
const SMALLEST: f32 = f32::from_bits((127 - 119) << 23);

/// Whether a product has activations and they are rounded.
pub(super) fn rounds(desc: &QuantMatmulDesc) -> bool {
    desc.math == MathMode::Int8 && desc.b.format.takes_int8() && desc.k() > 0
}

/// 128 activations of a row of A, as [`QuantLanes`] has the weights.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(align(64))]
struct Unit {
    quants: [[i8; 32]; 4],
    /// The scale of each lane.
    scales: [f32; 8],
    /// The sum of the rounded activations of each half block, in their order.
    sums: [f32; 8],
}

/// Rounds up to 128 activations, behind which there are zeros.
struct Round<'a> {
    activations: &'a [f32],
    order: &'a [u8; UNIT],
    unit: &'a mut Unit,
}

impl WithSimd for Round<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { activations, order, unit } = self;
        let mut room = [0.0; UNIT];
        room[..activations.len()].copy_from_slice(activations);
        let (mut quants, mut scales) = ([0; UNIT], [0.0; BLOCKS]);
        for (block, scale) in scales.iter_mut().enumerate() {
            let (from, to) = (block * BLOCK, (block + 1) * BLOCK);
            *scale = round(&room[from..to], &mut quants[from..to]);
            for half in 2 * block..2 * block + 2 {
                let mut sum = 0;
                for &quant in &quants[16 * half..16 * half + 16] {
                    sum += i32::from(quant);
                }
                unit.sums[half] = *scale * sum as f32;
            }
        }
        for (i, &place) in order.iter().enumerate() {
            unit.quants[i / 32][i % 32] = quants[usize::from(place)];
        }
        for (lane, scale) in unit.scales.iter_mut().enumerate() {
            *scale = scales[usize::from(order[4 * lane]) / BLOCK];
        }
    }
}

/// Rounds a block to multiples of its scale, which is returned: NaN if not all of it is finite.
#[inline(always)]
fn round(block: &[f32], quants: &mut [i8]) -> f32 {
    /// What has the integers as its last bits: a sum with it is rounded to one, ties to even.
    const INTEGERS: f32 = 1.5 * (1 << 23) as f32;
    // Of numbers without their signs, the bits are in the numbers' order.
    let mut largest = 0;
    for x in block {
        largest = largest.max(x.to_bits() & 0x7FFF_FFFF);
    }
    let largest = f32::from_bits(largest);
    if !largest.is_finite() {
        return f32::NAN;
    }
    if largest < SMALLEST {
        return 0.0;
    }
    let scale = largest / 127.0;
    for (quant, x) in quants.iter_mut().zip(block) {
        *quant = (x / scale + INTEGERS).to_bits() as i8;
    }
    scale
}

/// The rows of A, rounded.
#[derive(Debug)]
pub(super) struct Rounded {
    /// The first units of all rows, then the second ones.
    units: Vec<Unit>,
    /// Where the weights' format has the activations of a unit.
    order: [u8; UNIT],
    m: usize,
    k: usize,
}

impl Rounded {
    /// `m` rows of `k` activations, the first of each `lda` after that of the one before.
    pub(super) fn new(
        cores: Cores,
        format: QuantFormat,
        a: &[f32],
        [m, k, lda]: [usize; 3],
    ) -> Result<Self, NoRoom> {
        let order = format.lane_order();
        let mut units: Vec<Unit> = zeros(m * k.div_ceil(UNIT))?;
        cores.chunks(&mut units, 1, GRAIN, &|first, units| {
            for (i, unit) in (first..).zip(units) {
                let row = &a[i % m * lda..][..k];
                let start = i / m * UNIT;
                let activations = &row[start..k.min(start + UNIT)];
                Arch::new().dispatch(Round { activations, order: &order, unit });
            }
        });
        Ok(Self { units, order, m, k })
    }

    /// The products of rows of B from the row `first` on with all rows of A.
    pub(super) fn multiply(&self, layout: &QuantLayout, planes: &[u8], first: usize, sums: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(dot) = pulp::core_arch::x86::Avx2::try_new() {
            return Arch::new().dispatch(Product { dot, a: self, layout, planes, first, sums });
        }
        Arch::new().dispatch(Product { dot: Portable, a: self, layout, planes, first, sums });
    }

    /// Clears the scales of blocks behind the row's end, where they may have any value.
    #[inline(always)]
    fn cut(&self, number: usize, weights: &mut QuantLanes) {
        let blocks = (self.k - number * UNIT).div_ceil(BLOCK);
        if blocks >= BLOCKS {
            return;
        }
        for lane in 0..8 {
            if usize::from(self.order[4 * lane]) / BLOCK >= blocks {
                weights.scales[0][lane] = 0.0;
                weights.scales[1][lane] = 0.0;
            }
            if lane / 2 >= blocks {
                weights.offsets[lane] = 0.0;
            }
        }
    }
}

/// Products of rows of a quantised B with rows of A.
struct Product<'a, D> {
    dot: D,
    a: &'a Rounded,
    layout: &'a QuantLayout,
    planes: &'a [u8],
    first: usize,
    sums: &'a mut [f32],
}

impl<D: Dot> WithSimd for Product<'_, D> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.layout.format {
            QuantFormat::Q4_0 | QuantFormat::Q4_K | QuantFormat::Q5_K | QuantFormat::U4 { .. } => {
                self.multiply::<false, false>();
            }
            QuantFormat::Q6_K => self.multiply::<false, true>(),
            QuantFormat::Q8_0 | QuantFormat::Mxfp4 => self.multiply::<true, false>(),
            _ => self.multiply::<true, true>(),
        }
    }
}

impl<D: Dot> Product<'_, D> {
    /// With quants that may be negative if `SIGNED`, and half blocks with scales of their own if `HALVES`.
    #[inline(always)]
    fn multiply<const SIGNED: bool, const HALVES: bool>(self) {
        let Self { dot, a, layout, planes, first, sums } = self;
        for (i, sums) in sums.chunks_mut(COLUMNS * a.m).enumerate() {
            let columns = sums.len() / a.m;
            let mut rows = [None; COLUMNS];
            for (j, row) in rows[..columns].iter_mut().enumerate() {
                *row = layout.row(planes, first + i * COLUMNS + j);
            }
            for start in (0..a.m).step_by(ROWS) {
                let len = (a.m - start).min(ROWS);
                let mut lanes = [[[0.0f32; 8]; ROWS]; COLUMNS];
                let mut weights = [QuantLanes::ZERO; COLUMNS];
                for (number, units) in a.units.chunks_exact(a.m).enumerate() {
                    // All before the first is used, so that the processor has work while one is on its way.
                    for (weights, row) in weights.iter_mut().zip(&rows) {
                        let Some(row) = row else { break };
                        *weights = row.lanes(number);
                        a.cut(number, weights);
                    }
                    for (QuantLanes { quants, scales, offsets }, lanes) in
                        weights[..columns].iter().zip(&mut lanes)
                    {
                        for (lanes, unit) in lanes.iter_mut().zip(&units[start..start + len]) {
                            let [one, other] = dot.halves::<SIGNED>(quants, &unit.quants);
                            // As new arrays, which compilers keep in vectors.
                            let products: [f32; 8] = if HALVES {
                                from_fn(|i| scales[0][i] * one[i] as f32 + scales[1][i] * other[i] as f32)
                            } else {
                                from_fn(|i| scales[0][i] * (one[i] + other[i]) as f32)
                            };
                            *lanes = from_fn(|i| {
                                lanes[i] + (unit.scales[i] * products[i] - unit.sums[i] * offsets[i])
                            });
                        }
                    }
                }
                for (sums, lanes) in sums.chunks_exact_mut(a.m).zip(&lanes) {
                    for (sum, lanes) in sums[start..].iter_mut().zip(&lanes[..len]) {
                        *sum = lanes.iter().sum();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter::repeat_with;

    use super::*;

    #[test]
    fn activations_are_rounded_to_the_nearest_multiple_of_a_127th_of_the_largest() {
        let mut block = [0.0; BLOCK];
        block[..6].copy_from_slice(&[-254.0, 3.0, 5.0, 4.9, -1.1, 254.0]);
        let mut quants = [0; BLOCK];
        assert_eq!(round(&block, &mut quants), 2.0);
        assert_eq!(quants[..7], [-127, 2, 2, 2, -1, 127, 0]);
        let mut unit = Unit::zeroed();
        let activations = &[&block[..], &[1.0, f32::NAN], &[0.0; 40]].concat();
        let order = &QuantFormat::Q4_0.lane_order();
        Arch::new().dispatch(Round { activations, order, unit: &mut unit });
        assert_eq!((unit.scales[0], unit.scales[4], unit.sums[0]), (2.0, 2.0, 10.0));
        assert!(unit.scales[1].is_nan() && unit.sums[2].is_nan());
        assert_eq!((unit.scales[2], unit.scales[7], unit.sums[5]), (0.0, 0.0, 0.0));
        assert_eq!(unit.quants[0][..4], [-127, -1, 2, 127]);
    }

    #[test]
    fn tiny_activations_are_zeros_and_the_largest_ones_stay_finite() {
        let mut quants = [0; BLOCK];
        assert_eq!(SMALLEST, 2f32.powi(-119));
        assert_eq!(round(&[SMALLEST / 2.0, f32::from_bits(1)], &mut quants), 0.0);
        assert!(round(&[SMALLEST], &mut quants) >= f32::MIN_POSITIVE);
        assert_eq!(quants[0], 127);
        assert!(round(&[f32::MIN, 1.0], &mut quants).is_finite());
        assert_eq!(quants[..2], [-127, 0]);
        assert!(round(&[f32::NEG_INFINITY, 1.0], &mut quants).is_nan());
    }

    #[test]
    fn vector_instructions_make_the_sums_of_portable_loops() {
        let mut state = 1u32;
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        let u4 = |group| QuantFormat::U4 { group, zero_points: true };
        for format in QuantFormat::GGUF.into_iter().chain([32, 64, 128, 512].map(u4)) {
            let step = if let QuantFormat::U4 { .. } = format { 1 } else { format.block_elements() };
            for (m, k) in [(1, 512), (2, 256), (16, 1), (17, 300), (33, 1000)] {
                let (n, k) = (11, usize::next_multiple_of(k, step));
                let layout = QuantLayout::new("test", format, n, k).unwrap();
                let mut planes: Vec<u8> = repeat_with(|| noise() as u8).take(layout.bytes).collect();
                if format == QuantFormat::Mxfp4 {
                    planes[layout.scales.offset..]
                        .iter_mut()
                        .for_each(|exponent| *exponent = 100 + *exponent % 50);
                }
                let mut a: Vec<f32> = repeat_with(|| noise() as f32 - 8e6).take(m * k).collect();
                if m == 17 {
                    (a[3], a[k], a[2 * k - 1]) = (f32::NAN, f32::INFINITY, 1e-38);
                }
                let rounded = Rounded::new(Cores::One, format, &a, [m, k, k]).ok().unwrap();
                let [mut fast, mut slow] = [vec![1.0f32; n * m], vec![2.0; n * m]];
                rounded.multiply(&layout, &planes, 0, &mut fast);
                let (sums, layout, planes) = (&mut slow[..], &layout, &planes[..]);
                Product { dot: Portable, a: &rounded, layout, planes, first: 0, sums }
                    .with_simd(pulp::Scalar::new());
                let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
                assert!(fast.iter().zip(&slow).all(same), "{format}, {m} rows of {k}");
                assert!(m != 17 || fast.chunks(m).all(|sums| sums[0].is_nan() && sums[1].is_nan()));
                assert!(fast.iter().any(|sum| sum.is_finite()), "{format}, {m} rows of {k}");
                near_those_of_the_weights(&rounded, layout, planes, &fast);
            }
        }
    }

    /// Compares finite sums with those of weights times rounded activations.
    fn near_those_of_the_weights(a: &Rounded, layout: &QuantLayout, planes: &[u8], sums: &[f32]) {
        let (mut weights, mut magnitudes) = ([0.0; UNIT], [0.0; UNIT]);
        for (j, sums) in sums.chunks(a.m).enumerate() {
            let row = layout.row(planes, j).unwrap();
            let (mut wanted, mut terms) = (vec![0.0; a.m], vec![0.0; a.m]);
            for (number, units) in a.units.chunks(a.m).enumerate() {
                row.dequantize(number, &mut weights);
                row.magnitudes(number, &mut magnitudes);
                for (i, unit) in units.iter().enumerate() {
                    for (at, &place) in a.order.iter().enumerate() {
                        let place = usize::from(place);
                        if number * UNIT + place < a.k {
                            let x =
                                f64::from(unit.quants[at / 32][at % 32]) * f64::from(unit.scales[at / 4 % 8]);
                            wanted[i] += x * f64::from(weights[place]);
                            terms[i] += x.abs() * f64::from(magnitudes[place]);
                        }
                    }
                }
            }
            for (sum, (wanted, terms)) in sums.iter().zip(wanted.iter().zip(terms)) {
                let error = (f64::from(*sum) - wanted).abs();
                let is_near = error <= 16.0 * terms * f64::from(f32::EPSILON);
                assert!(is_near || !sum.is_finite(), "{}: {sum}, not {wanted}", layout.format);
            }
        }
    }
}
