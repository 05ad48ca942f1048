//! Few rows: each lane of a vector has a part of one row's products.

use std::array::from_fn;

use backend_api::quant::{QuantCode, QuantLanes};
use pulp::{Simd, WithSimd};

use super::{Product, Quants};

/// Rows of A for which a unit of weights is unpacked once.
const ROWS: usize = 32;

/// Rows of B for which a unit of [`ROWS`] rows of A stays in the first cache.
const COLUMNS: usize = 8;

/// Multiplies vectors of quants of weights, from −128 on, with those of activations, from −127 to 127, and adds the products
/// of each lane of four.
pub(super) trait Dot: Copy {
    /// The exact sums of the first two vectors and of the last two. Quants are up to 63 and not negative unless `SIGNED`.
    fn halves<const SIGNED: bool>(self, weights: &Quants, activations: &Quants) -> [[i32; 8]; 2];
}

impl Dot for super::Portable {
    #[inline(always)]
    fn halves<const SIGNED: bool>(self, weights: &Quants, activations: &Quants) -> [[i32; 8]; 2] {
        let mut sums = [[0; 8]; 2];
        for (half, sums) in sums.iter_mut().enumerate() {
            let [w, v] = [&weights[2 * half], &weights[2 * half + 1]];
            let [x, y] = [&activations[2 * half], &activations[2 * half + 1]];
            // Two products of −128 and 127 have just room.
            let mut products = [0i16; 32];
            for i in 0..32 {
                products[i] = i16::from(w[i]) * i16::from(x[i]) + i16::from(v[i]) * i16::from(y[i]);
            }
            for (sum, lane) in sums.iter_mut().zip(products.as_chunks::<4>().0) {
                *sum = i32::from(lane[0]) + i32::from(lane[1]) + i32::from(lane[2]) + i32::from(lane[3]);
            }
        }
        sums
    }
}

/// Products with few rows of A.
pub(super) struct Few<'a, D>(pub(super) D, pub(super) Product<'a>);

impl<D: Dot> WithSimd for Few<'_, D> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let format = self.1.layout.format;
        let has_halves = format.scale_kind().has_halves();
        match format.code() {
            QuantCode::Three | QuantCode::Six if has_halves => self.multiply::<false, true>(),
            QuantCode::Four | QuantCode::Five if !has_halves => self.multiply::<false, false>(),
            QuantCode::Eight | QuantCode::E2m1 | QuantCode::Iq4 if !has_halves => {
                self.multiply::<true, false>();
            }
            _ => self.multiply::<true, true>(),
        }
    }
}

impl<D: Dot> Few<'_, D> {
    /// With quants that may be negative if `SIGNED`, and half blocks with scales of their own if `HALVES`.
    #[inline(always)]
    fn multiply<const SIGNED: bool, const HALVES: bool>(self) {
        let Self(dot, Product { a, layout, planes, first, sums }) = self;
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
                        // The planes were checked with the operands, so every row is there.
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

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::__m256i;

    use bytemuck::cast;
    use pulp::core_arch::x86::Avx2;

    use super::{Dot, Quants};

    impl Dot for Avx2 {
        #[inline(always)]
        fn halves<const SIGNED: bool>(self, weights: &Quants, activations: &Quants) -> [[i32; 8]; 2] {
            let [w, x]: [[__m256i; 4]; 2] = [cast(*weights), cast(*activations)];
            let ones: __m256i = cast([1i16; 16]);
            let mut sums = [[0; 8]; 2];
            for (half, sums) in sums.iter_mut().enumerate() {
                let (one, other) = (2 * half, 2 * half + 1);
                *sums = cast(if SIGNED {
                    // Instructions take one factor without a sign, which the other one is given: products are those of before.
                    let one = self._mm256_maddubs_epi16(
                        self._mm256_abs_epi8(w[one]),
                        self._mm256_sign_epi8(x[one], w[one]),
                    );
                    let other = self._mm256_maddubs_epi16(
                        self._mm256_abs_epi8(w[other]),
                        self._mm256_sign_epi8(x[other], w[other]),
                    );
                    // Of 128 · 127, two have room in 16 bits, but not four.
                    self._mm256_add_epi32(
                        self._mm256_madd_epi16(one, ones),
                        self._mm256_madd_epi16(other, ones),
                    )
                } else {
                    // Of 63 · 127, four have room in 16 bits.
                    let pairs = self._mm256_add_epi16(
                        self._mm256_maddubs_epi16(w[one], x[one]),
                        self._mm256_maddubs_epi16(w[other], x[other]),
                    );
                    self._mm256_madd_epi16(pairs, ones)
                });
            }
            sums
        }
    }
}
