//! Dot products of 8-bit integers, four at a time.

/// Multiplies vectors of quants of weights, from −128 on, with those of activations, from −127 to 127, and adds the products
/// of each lane of four.
pub(super) trait Dot: Copy {
    /// The exact sums of the first two vectors and of the last two. Quants are up to 63 and not negative unless `SIGNED`.
    fn halves<const SIGNED: bool>(
        self,
        weights: &[[i8; 32]; 4],
        activations: &[[i8; 32]; 4],
    ) -> [[i32; 8]; 2];
}

/// Loops that compilers make what vectors they can of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portable;

impl Dot for Portable {
    #[inline(always)]
    fn halves<const SIGNED: bool>(
        self,
        weights: &[[i8; 32]; 4],
        activations: &[[i8; 32]; 4],
    ) -> [[i32; 8]; 2] {
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

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::__m256i;

    use bytemuck::cast;
    use pulp::core_arch::x86::Avx2;

    use super::Dot;

    impl Dot for Avx2 {
        #[inline(always)]
        fn halves<const SIGNED: bool>(
            self,
            weights: &[[i8; 32]; 4],
            activations: &[[i8; 32]; 4],
        ) -> [[i32; 8]; 2] {
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
