//! Many rows: each lane of a vector has the products of a row of its own.

use std::array::from_fn;

use backend_api::quant::{QuantCode, QuantFormat, QuantLanes, UNIT};
use bytemuck::{Zeroable, cast_ref};
use pulp::{Simd, WithSimd};

use super::{BLOCK, BLOCKS, Product, Quants, Unit};

/// Rows in a [`Tile`].
pub(super) const ROWS: usize = 16;

/// Tiles for which a unit of weights is unpacked once.
const TILES: usize = 4;

/// Rows of B for which a unit of [`TILES`] tiles stays in the first cache.
const COLUMNS: usize = 8;

/// What is known of the quants of a format's weights.
#[derive(Clone, Copy, Debug)]
pub(super) enum Weights {
    /// Half blocks have scales of their own.
    Halves,
    /// Of up to five bits, without a sign.
    Unsigned,
    /// Bytes with a sign.
    Bytes,
    /// Values of IQ4_NL and IQ4_XS.
    Iq4,
    /// Values of MXFP4, doubled.
    E2m1,
}

impl Weights {
    /// `None` for formats that have no tiles.
    pub(super) fn of(format: QuantFormat) -> Option<Self> {
        match (format.code(), format.scale_kind().has_halves()) {
            (QuantCode::Three | QuantCode::Six, true) => Some(Self::Halves),
            (QuantCode::Four | QuantCode::Five, false) => Some(Self::Unsigned),
            (QuantCode::Eight, false) => Some(Self::Bytes),
            (QuantCode::Iq4, false) => Some(Self::Iq4),
            (QuantCode::E2m1, false) => Some(Self::E2m1),
            _ => None,
        }
    }
}

/// Whether the CPU multiplies `m` rows faster by tiles: not without AVX-512.
pub(super) fn is_worth_it(m: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    let is_wide = matches!(pulp::Arch::new(), pulp::Arch::V4(_));
    #[cfg(not(target_arch = "x86_64"))]
    let is_wide = false;
    is_wide && m > ROWS / 2
}

/// The activations of half a block, four by four, of each row.
type Half = [[[i8; 4]; ROWS]; 4];

/// A unit of sixteen rows of A, rows side by side.
#[derive(Clone, Copy, Debug, Zeroable)]
#[repr(align(64))]
pub(super) struct Tile {
    quants: [[Half; 2]; BLOCKS],
    scales: [[f32; ROWS]; BLOCKS],
    /// The sums of the integers of each half block.
    sums: [[[f32; ROWS]; 2]; BLOCKS],
}

impl Tile {
    /// Interleaves the units of up to sixteen rows.
    pub(super) fn fill(&mut self, order: &[u8; UNIT], units: &[Unit]) {
        for (row, unit) in units.iter().enumerate() {
            // How many lanes each half block has until now.
            let mut lanes = [[0; 2]; BLOCKS];
            for (i, quants) in unit.quants.as_flattened().as_chunks::<4>().0.iter().enumerate() {
                let (block, half, lane) = (usize::from(order[4 * i]) / BLOCK, i / 16, i % 8);
                let place = &mut lanes[block][half];
                self.quants[block][half][*place][row] = *quants;
                *place += 1;
                self.scales[block][row] = unit.scales[lane];
                self.sums[block][half][row] += quants.iter().map(|&quant| f32::from(quant)).sum::<f32>();
            }
        }
    }
}

/// Multiplies quants of half a block of weights with those of sixteen rows, and adds the products of each row.
pub(super) trait TileDot: Copy {
    /// Exact sums. Weights are from 0 to 31, or to 63 if they are `WIDE`.
    fn dot<const WIDE: bool>(self, weights: [[i8; 4]; 4], rows: &Half) -> [i32; ROWS];
}

#[cfg(test)]
impl TileDot for super::Portable {
    #[inline(always)]
    fn dot<const WIDE: bool>(self, weights: [[i8; 4]; 4], rows: &Half) -> [i32; ROWS] {
        let mut sums = [0; ROWS];
        for (weights, rows) in weights.iter().zip(rows) {
            for (sum, row) in sums.iter_mut().zip(rows) {
                for i in 0..4 {
                    *sum += i32::from(weights[i]) * i32::from(row[i]);
                }
            }
        }
        sums
    }
}

/// Products with many rows of A, of which there are tiles.
pub(super) struct Many<'a, D> {
    pub(super) dot: D,
    pub(super) weights: Weights,
    /// The tiles of all rows' first units, then of the second ones.
    pub(super) tiles: &'a [Tile],
    pub(super) product: Product<'a>,
}

impl<D: TileDot> WithSimd for Many<'_, D> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        match self.weights {
            Weights::Halves => self.multiply::<0, true>(),
            Weights::Unsigned => self.multiply::<0, false>(),
            Weights::Bytes => self.multiply::<128, false>(),
            Weights::Iq4 => self.multiply::<127, false>(),
            Weights::E2m1 => self.multiply::<12, false>(),
        }
    }
}

impl<D: TileDot> Many<'_, D> {
    /// With quants that are from `-ZERO` on, and `HALVES` of blocks with scales of their own.
    #[inline(always)]
    fn multiply<const ZERO: u8, const HALVES: bool>(self) {
        let Self { dot, tiles, product: Product { a, layout, planes, first, sums }, .. } = self;
        let across = a.m.div_ceil(ROWS);
        for (i, sums) in sums.chunks_mut(COLUMNS * a.m).enumerate() {
            let columns = sums.len() / a.m;
            let mut rows = [None; COLUMNS];
            for (j, row) in rows[..columns].iter_mut().enumerate() {
                *row = layout.row(planes, first + i * COLUMNS + j);
            }
            for start in (0..across).step_by(TILES) {
                let len = (across - start).min(TILES);
                let mut lanes = [[[0.0f32; ROWS]; TILES]; COLUMNS];
                let mut weights = [Digits::<ZERO>::default(); COLUMNS];
                for (number, tiles) in tiles.chunks_exact(across).enumerate() {
                    for (weights, row) in weights.iter_mut().zip(&rows) {
                        // The planes were checked with the operands, so every row is there.
                        let Some(row) = row else { break };
                        let mut quants = row.lanes(number);
                        a.cut(number, &mut quants);
                        *weights = Digits::new(quants);
                    }
                    for (weights, lanes) in weights[..columns].iter().zip(&mut lanes) {
                        for (lanes, tile) in lanes.iter_mut().zip(&tiles[start..start + len]) {
                            *lanes = weights.add::<D, HALVES>(dot, tile, *lanes);
                        }
                    }
                }
                for (sums, lanes) in sums.chunks_exact_mut(a.m).zip(&lanes) {
                    let to = &mut sums[start * ROWS..a.m.min((start + len) * ROWS)];
                    to.copy_from_slice(&lanes.as_flattened()[..to.len()]);
                }
            }
        }
    }
}

/// A unit of weights, its quants as numbers that are not negative: where they are signed bytes, two digits of
/// four bits: `ZERO` is 128 of Q8_0, 127 of the values of IQ4_NL and IQ4_XS.
#[derive(Clone, Copy, Debug)]
struct Digits<const ZERO: u8> {
    low: Quants,
    high: Quants,
    scales: [[f32; 8]; 2],
    offsets: [f32; 8],
}

impl<const ZERO: u8> Default for Digits<ZERO> {
    fn default() -> Self {
        Self { low: [[0; 32]; 4], high: [[0; 32]; 4], scales: [[0.0; 8]; 2], offsets: [0.0; 8] }
    }
}

impl<const ZERO: u8> Digits<ZERO> {
    /// Whether quants are beyond 31.
    const HAS_HIGH: bool = ZERO >= 127;

    #[inline(always)]
    fn new(weights: QuantLanes) -> Self {
        let QuantLanes { quants: mut low, scales, offsets } = weights;
        let mut high = [[0; 32]; 4];
        for (low, high) in low.as_flattened_mut().iter_mut().zip(high.as_flattened_mut()) {
            let quant = low.cast_unsigned().wrapping_add(ZERO);
            if Self::HAS_HIGH {
                *high = (quant >> 4).cast_signed();
                *low = (quant & 15).cast_signed();
            } else {
                *low = quant.cast_signed();
            }
        }
        Self { low, high, scales, offsets }
    }

    /// `sums` and the products with a tile.
    #[inline(always)]
    fn add<D: TileDot, const HALVES: bool>(&self, dot: D, tile: &Tile, mut sums: [f32; ROWS]) -> [f32; ROWS] {
        for block in 0..BLOCKS {
            // The lanes of a block: side by side in formats of eight bits, the only ones from -128 on.
            let [one, other] = if ZERO == 128 { [2 * block, 2 * block + 1] } else { [block, block + 4] };
            let [x, y] = &tile.sums[block];
            let mut dots = [[0; ROWS]; 2];
            for (half, dots) in dots.iter_mut().enumerate() {
                let rows = &tile.quants[block][half];
                *dots = dot.dot::<HALVES>(four(&self.low, half, one, other), rows);
                if Self::HAS_HIGH {
                    let high = dot.dot::<HALVES>(four(&self.high, half, one, other), rows);
                    *dots = from_fn(|i| dots[i] + 16 * high[i]);
                }
            }
            let [p, q] = dots;
            let scales = [self.scales[0][one], self.scales[1][one]];
            let [o, r] = [self.offsets[2 * block], self.offsets[2 * block + 1]];
            // As new arrays, which compilers keep in vectors.
            let products: [f32; ROWS] = if HALVES {
                from_fn(|i| scales[0] * p[i] as f32 + scales[1] * q[i] as f32 - (o * x[i] + r * y[i]))
            } else if ZERO == 0 {
                from_fn(|i| scales[0] * (p[i] + q[i]) as f32 - (o * x[i] + r * y[i]))
            } else {
                // Differences of integers are exact.
                from_fn(|i| scales[0] * ((p[i] + q[i]) as f32 - f32::from(ZERO) * (x[i] + y[i])))
            };
            sums = from_fn(|i| sums[i] + tile.scales[block][i] * products[i]);
        }
        sums
    }
}

/// The quants of half a block.
#[inline(always)]
fn four(quants: &Quants, half: usize, one: usize, other: usize) -> [[i8; 4]; 4] {
    let lanes: &[[[i8; 4]; 8]; 4] = cast_ref(quants);
    let [u, v] = [&lanes[2 * half], &lanes[2 * half + 1]];
    [u[one], u[other], v[one], v[other]]
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::__m512i;

    use bytemuck::cast;
    use pulp::x86::V4;

    use super::{Half, ROWS, TileDot};

    impl TileDot for V4 {
        #[inline(always)]
        fn dot<const WIDE: bool>(self, weights: [[i8; 4]; 4], rows: &Half) -> [i32; ROWS] {
            let (bytes, words) = (self.avx512bw, self.avx512f);
            let mut pairs = [cast::<_, __m512i>([0i32; ROWS]); 4];
            for i in 0..4 {
                pairs[i] = bytes._mm512_maddubs_epi16(cast([weights[i]; ROWS]), cast(rows[i]));
            }
            let ones = cast([1i16; 2 * ROWS]);
            // Of 63 · 127, four have room in 16 bits, and of 31 · 127 eight.
            let one = bytes._mm512_add_epi16(pairs[0], pairs[1]);
            let other = bytes._mm512_add_epi16(pairs[2], pairs[3]);
            cast(if WIDE {
                words._mm512_add_epi32(
                    bytes._mm512_madd_epi16(one, ones),
                    bytes._mm512_madd_epi16(other, ones),
                )
            } else {
                bytes._mm512_madd_epi16(bytes._mm512_add_epi16(one, other), ones)
            })
        }
    }
}
