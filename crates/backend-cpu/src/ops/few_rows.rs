//! Skinny products with quantised weights in f32: a unit of weights is multiplied as soon as it is dequantised.

use std::array::from_fn;

use backend_api::quant::{QuantFormat, QuantLanes, QuantLayout, UNIT};
use pulp::{Simd, WithSimd};

use super::int8::{Portable, Product, cut, portably};
use crate::room::{NoRoom, zeros};

/// Rows of A up to which that is worth it. More are worth a panel of dequantised rows in the cache.
pub(super) const ROWS: usize = 4;

/// Numbers in the order of [`Vectors::widen`].
type Unit = [[[f32; 8]; 4]; 4];

/// Up to [`ROWS`] rows of A.
pub(super) struct FewRows {
    /// The first units of all rows, then the second ones, with zeros behind the rows' ends.
    units: Vec<Unit>,
    order: [u8; UNIT],
    m: usize,
    k: usize,
}

impl FewRows {
    /// `m` rows of `k` activations, the first of each `lda` after that of the one before.
    pub(super) fn new(format: QuantFormat, a: &[f32], [m, k, lda]: [usize; 3]) -> Result<Self, NoRoom> {
        let order = format.lane_order();
        let mut units: Vec<Unit> = zeros(m * k.div_ceil(UNIT))?;
        for (i, unit) in units.iter_mut().enumerate() {
            let activations = &a[i % m * lda..][..k][i / m * UNIT..];
            for (place, &from) in order.iter().enumerate() {
                let x = activations.get(usize::from(from)).copied();
                unit[place / 32][place % 4][place / 4 % 8] = x.unwrap_or(0.0);
            }
        }
        Ok(Self { units, order, m, k })
    }

    /// The products of rows of B from the row `first` on with all rows of A.
    pub(super) fn multiply(&self, layout: &QuantLayout, planes: &[u8], first: usize, sums: &mut [f32]) {
        let product = Product { a: self, layout, planes, first, sums };
        // Also where there is AVX-512, with which compilers unpack high bits more slowly.
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            return Simd::vectorize(simd, Few(simd, product));
        }
        portably(Few(Portable, product));
    }
}

/// Arithmetic of vectors of eight.
trait Vectors: Copy {
    /// The first quants of the eight lanes, then the second, third and fourth ones.
    fn widen(self, quants: &[i8; 32]) -> [[f32; 8]; 4];

    /// `a · b + c`, rounded once or twice.
    fn multiply_add(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8];
}

impl Vectors for Portable {
    #[inline(always)]
    fn widen(self, quants: &[i8; 32]) -> [[f32; 8]; 4] {
        from_fn(|byte| from_fn(|lane| f32::from(quants[4 * lane + byte])))
    }

    #[inline(always)]
    fn multiply_add(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        from_fn(|lane| a[lane] * b[lane] + c[lane])
    }
}

struct Few<'a, V>(V, Product<'a, FewRows>);

impl<V: Vectors> WithSimd for Few<'_, V> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.1.a.m {
            1 => self.multiply::<1>(),
            2 => self.multiply::<2>(),
            3 => self.multiply::<3>(),
            _ => self.multiply::<ROWS>(),
        }
    }
}

impl<V: Vectors> Few<'_, V> {
    #[inline(always)]
    fn multiply<const M: usize>(self) {
        let Self(simd, Product { a, layout, planes, first, sums }) = self;
        // The zero point where it is known, with which infinite scales make infinite weights.
        let zero = layout.format.zero_point().unwrap_or(0);
        for (j, sums) in sums.as_chunks_mut::<M>().0.iter_mut().enumerate() {
            // The planes were checked with the operands, so every row is there.
            let Some(row) = layout.row(planes, first + j) else { continue };
            let mut lanes = [[0.0; 8]; M];
            for (number, units) in a.units.as_chunks::<M>().0.iter().enumerate() {
                let mut weights = row.lanes(number);
                if zero > 0 {
                    weights.offsets = [0.0; 8];
                    weights.quants.as_flattened_mut().iter_mut().for_each(|quant| *quant -= zero);
                }
                cut(&a.order, a.k - number * UNIT, &mut weights);
                let weights = dequantize(simd, &weights);
                for (lanes, unit) in lanes.iter_mut().zip(units) {
                    // Sums of each unit by themselves don't wait for those of the one before.
                    let mut products = [[0.0; 8]; 2];
                    for (i, (w, x)) in weights.as_flattened().iter().zip(unit.as_flattened()).enumerate() {
                        products[i % 2] = simd.multiply_add(*w, *x, products[i % 2]);
                    }
                    *lanes = from_fn(|lane| lanes[lane] + (products[0][lane] + products[1][lane]));
                }
            }
            *sums = lanes.map(|lanes| lanes.iter().sum());
        }
    }
}

/// The weights of a unit. Products with scales are exact, and so are offsets.
#[inline(always)]
fn dequantize<V: Vectors>(simd: V, weights: &QuantLanes) -> Unit {
    let QuantLanes { quants, scales, offsets } = weights;
    let mut unit = [[[0.0; 8]; 4]; 4];
    for half in 0..2 {
        // Of the formats that have offsets, a lane's block is known.
        let offsets: [f32; 8] = from_fn(|lane| -offsets[lane % 4 * 2 + half]);
        for vector in 2 * half..2 * half + 2 {
            let quants = simd.widen(&quants[vector]);
            for byte in 0..4 {
                unit[vector][byte] = simd.multiply_add(quants[byte], scales[half], offsets);
            }
        }
    }
    unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::noise;

    /// Quants of 1 with scales of 1, and an infinite one at the end.
    #[test]
    fn an_infinite_scale_makes_infinite_sums() {
        for (format, quant) in [(QuantFormat::Q8_0, 1), (QuantFormat::Q4_0, 0x99)] {
            let layout = QuantLayout::new("test", format, 1, UNIT).unwrap();
            let mut planes = vec![quant; layout.bytes];
            let scales = &mut planes[layout.scales.offset..][..layout.scales.row_bytes];
            scales.as_chunks_mut().0.fill([0, 0x3C]);
            scales[6..8].copy_from_slice(&[0, 0x7C]);
            let rows = FewRows::new(format, &[1.0; UNIT], [1, UNIT, UNIT]).ok().unwrap();
            let [mut fast, mut slow] = [[0.0]; 2];
            rows.multiply(&layout, &planes, 0, &mut fast);
            let product = Product { a: &rows, layout: &layout, planes: &planes, first: 0, sums: &mut slow };
            Few(Portable, product).with_simd(pulp::Scalar::new());
            assert_eq!([fast, slow], [[f32::INFINITY]; 2], "{format}");
        }
    }

    #[test]
    fn sums_are_near_those_of_the_weights() {
        let mut noise = noise();
        let u4 = |group| QuantFormat::U4 { group, zero_points: true };
        for format in QuantFormat::GGUF.into_iter().chain([16, 32, 256].map(u4)) {
            let step = if let QuantFormat::U4 { .. } = format { 1 } else { format.block_elements() };
            for (m, k) in [(1, 300), (2, 1), (3, 128), (4, 530)] {
                let (n, k) = (3, usize::next_multiple_of(k, step));
                let layout = QuantLayout::new("test", format, n, k).unwrap();
                let mut planes: Vec<u8> = (0..layout.bytes).map(|_| noise() as u8).collect();
                // Not the exponent of infinities.
                planes[layout.scales.offset..].iter_mut().for_each(|byte| *byte &= 0x7B);
                if let QuantFormat::U4 { group: 16, .. } = format {
                    // Behind the end of a row there may be infinities.
                    let row = layout.scales.row_bytes;
                    for scales in planes[layout.scales.offset..][..n * row].chunks_mut(row) {
                        let behind = (2 * k.div_ceil(16)).min(row);
                        scales[behind..].as_chunks_mut().0.fill([0, 0x7C]);
                    }
                }
                let a: Vec<f32> = (0..m * k).map(|_| noise() as f32 - 8e6).collect();
                let rows = FewRows::new(format, &a, [m, k, k]).ok().unwrap();
                let [mut fast, mut slow] = [vec![f32::NAN; n * m], vec![f32::NAN; n * m]];
                rows.multiply(&layout, &planes, 0, &mut fast);
                let product =
                    Product { a: &rows, layout: &layout, planes: &planes, first: 0, sums: &mut slow };
                Few(Portable, product).with_simd(pulp::Scalar::new());
                let (mut weights, mut magnitudes) = ([0.0; UNIT], [0.0; UNIT]);
                for (i, (fast, slow)) in fast.iter().zip(&slow).enumerate() {
                    let row = layout.row(&planes, i / m).unwrap();
                    let (mut sum, mut terms) = (0.0, 0.0);
                    for (p, &x) in a[i % m * k..][..k].iter().enumerate() {
                        row.dequantize(p / UNIT, &mut weights);
                        row.magnitudes(p / UNIT, &mut magnitudes);
                        sum += f64::from(x) * f64::from(weights[p % UNIT]);
                        terms += f64::from(x.abs()) * f64::from(magnitudes[p % UNIT]);
                    }
                    let bound = terms * (k + 8) as f64 * 2f64.powi(-24);
                    for got in [fast, slow] {
                        let is_near = (f64::from(*got) - sum).abs() <= bound;
                        assert!(is_near, "{format}, {m} rows of {k}: {got}, not {sum}");
                    }
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::__m256i;

    use bytemuck::{cast, cast_ref};
    use pulp::x86::V3;

    use super::Vectors;

    impl Vectors for V3 {
        #[inline(always)]
        fn widen(self, quants: &[i8; 32]) -> [[f32; 8]; 4] {
            let quants: &__m256i = cast_ref(quants);
            let (avx, avx2) = (self.avx, self.avx2);
            let last = [
                avx2._mm256_slli_epi32::<24>(*quants),
                avx2._mm256_slli_epi32::<16>(*quants),
                avx2._mm256_slli_epi32::<8>(*quants),
                *quants,
            ];
            last.map(|quants| cast(avx._mm256_cvtepi32_ps(avx2._mm256_srai_epi32::<24>(quants))))
        }

        #[inline(always)]
        fn multiply_add(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
            cast(self.fma._mm256_fmadd_ps(cast(a), cast(b), cast(c)))
        }
    }
}
