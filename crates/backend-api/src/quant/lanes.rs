//! Quants in the order of their planes, for 8-bit dot products.

use super::decode::QuantScale;
use super::format::by_format;
use super::planes::{QuantRow, load};
use super::word::{doubled_e2m1, values_of_iq4};
use super::{QuantCode, QuantFormat, UNIT};

/// A unit of 128 quants for 8-bit dot products: four vectors of eight lanes, each lane four quants of one block.
///
/// The order of the quants, [`QuantFormat::lane_order`], is that in which they come out of the planes by masks and shifts of
/// vectors. In all formats the first two vectors are the first halves of the unit's four blocks, the last two the second
/// halves, and a lane is of the same block in each vector.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(align(32))]
pub struct QuantLanes {
    /// The numbers that quants stand for, negative ones only of [`QuantCode::Eight`], `E2m1` and `Iq4`.
    pub quants: [[i8; 32]; 4],
    /// What the quants of each lane are multiplied by, of the first two vectors and of the last two.
    pub scales: [[f32; 8]; 2],
    /// What is subtracted from each weight of a half block, `scale · zero + min`, half blocks in the order of the weights.
    pub offsets: [f32; 8],
}

/// The weights of a word whose quants are the lower nibbles of its four bytes; the upper ones are of the weights 2 behind them.
const NIBBLES: [u8; 4] = [0, 4, 1, 5];

impl QuantLanes {
    /// No weights.
    pub const ZERO: Self = Self { quants: [[0; 32]; 4], scales: [[0.0; 8]; 2], offsets: [0.0; 8] };
}

impl QuantFormat {
    /// The places in their unit of the 128 quants of [`QuantLanes`], vector after vector.
    #[must_use]
    pub const fn lane_order(self) -> [u8; UNIT] {
        let mut order = [0; UNIT];
        let mut i = 0;
        while i < UNIT {
            let (vector, lane, byte) = (i / 32, i / 4 % 8, i % 4);
            let (block, word, weight) = match self.code() {
                QuantCode::Eight => (lane / 2, vector, lane % 2 * 4 + byte),
                _ => (lane % 4, vector / 2 * 2 + lane / 4, NIBBLES[byte] as usize + vector % 2 * 2),
            };
            order[i] = (32 * block + 8 * word + weight) as u8;
            i += 1;
        }
        order
    }
}

/// Loops are over whole vectors, without closures, so that callers' vector instructions reach all of it.
impl QuantRow<'_> {
    /// The 128 quants of a unit for dot products, those of the padding too; zeros for a unit that the row doesn't have.
    // In a page, where no vectors are wider by a caller, a copy for each caller would only be longer to load.
    #[cfg_attr(not(target_family = "wasm"), inline(always))]
    #[cfg_attr(target_family = "wasm", inline(never))]
    pub fn lanes(&self, unit: usize) -> QuantLanes {
        if unit >= self.units {
            return QuantLanes::ZERO;
        }
        by_format!(
            self.format,
            format => QuantRow { format, ..*self }.load_lanes(unit),
            otherwise self.load_lanes_once(unit)
        )
    }

    /// The lanes of a unit, not inlined.
    #[inline(never)]
    fn load_lanes_once(&self, unit: usize) -> QuantLanes {
        by_format!(self.format, format => QuantRow { format, ..*self }.load_lanes(unit))
    }

    #[inline(always)]
    fn load_lanes(&self, unit: usize) -> QuantLanes {
        let halves = self.unit_scales(unit);
        let (mut scales, mut offsets) = ([[0.0; 8]; 2], [0.0; 8]);
        // Asked of the format: a choice by whether the number is 0 may be compiled to the product with it.
        let has_zero_point = self.format.zero_point() != Some(0);
        for lane in 0..8 {
            let block = if self.format.code() == QuantCode::Eight { lane / 2 } else { lane % 4 };
            scales[0][lane] = halves[2 * block].scale;
            scales[1][lane] = halves[2 * block + 1].scale;
            let QuantScale { scale, zero, min } = halves[lane];
            // Without a zero point, infinite scales leave it finite.
            offsets[lane] = if has_zero_point { scale * zero + min } else { min };
        }
        QuantLanes { quants: self.vectors(unit), scales, offsets }
    }

    #[inline(always)]
    fn vectors(&self, unit: usize) -> [[i8; 32]; 4] {
        let code = self.format.code();
        if code == QuantCode::Eight {
            let bytes: [u8; UNIT] = load(self.quants, UNIT * unit);
            return bytemuck::cast(bytes);
        }
        let mut vectors = [[0; 32]; 4];
        for half in 0..2 {
            let (mut low, mut up) = ([0u32; 8], [0u32; 8]);
            if matches!(code, QuantCode::Two | QuantCode::Three) {
                let bytes: [u8; 16] = load(self.quants, 32 * unit + 16 * half);
                for lane in 0..8 {
                    // Of a word's pairs of bits, those at bits 0, 4, 16 and 20, and those 2 above these.
                    let word = u32::from_le_bytes(load(&bytes, lane % 4 * 4)) >> (lane / 4 * 8);
                    low[lane] = word & 0x0003_0003 | word << 4 & 0x0300_0300;
                    up[lane] = word >> 2 & 0x0003_0003 | word << 2 & 0x0300_0300;
                }
            } else {
                let bytes: [u8; 32] = load(self.quants, 64 * unit + 32 * half);
                for lane in 0..8 {
                    let word = u32::from_le_bytes(load(&bytes, 4 * lane));
                    (low[lane], up[lane]) = (word & 0x0F0F_0F0F, word >> 4 & 0x0F0F_0F0F);
                }
            }
            if matches!(code, QuantCode::Three | QuantCode::Five) {
                let bits: [u8; 8] = load(self.high, 16 * unit + 8 * half);
                let down = if code == QuantCode::Three { 2 } else { 0 };
                for lane in 0..8 {
                    // Bits 0, 4, 1 and 5 to bits 4, 12, 20 and 28, and the bits 2 above these to 2 above those.
                    let bits = u32::from(bits[lane]);
                    let bits = bits << 4 | bits << 8 | bits << 19 | bits << 23;
                    low[lane] |= (bits & 0x1010_1010) >> down;
                    up[lane] |= (bits >> 2 & 0x1010_1010) >> down;
                }
            } else if code == QuantCode::Six {
                let pairs: [u8; 16] = load(self.high, 32 * unit + 16 * half);
                for lane in 0..8 {
                    // The pairs from bits 0, 8, 2 and 10 to bits 0, 8, 16 and 24, and the pairs 4 above these to 4 above those.
                    let pairs = u32::from(u16::from_le_bytes([pairs[2 * lane], pairs[2 * lane + 1]]));
                    let pairs = pairs | pairs << 14;
                    low[lane] |= pairs << 4 & 0x3030_3030;
                    up[lane] |= pairs & 0x3030_3030;
                }
            }
            vectors[2 * half] = self.bytes(low);
            vectors[2 * half + 1] = self.bytes(up);
        }
        vectors
    }

    /// The numbers that the quants of a vector stand for, of which a `u32` has four.
    #[inline(always)]
    fn bytes(&self, quants: [u32; 8]) -> [i8; 32] {
        let mut bytes = [[0; 8]; 4];
        for (bytes, pair) in bytes.iter_mut().zip(quants.as_chunks::<2>().0) {
            let word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
            let word = match self.format.code() {
                QuantCode::E2m1 => doubled_e2m1(word),
                QuantCode::Iq4 => values_of_iq4(word),
                _ => word,
            };
            *bytes = word.to_le_bytes();
        }
        bytemuck::cast(bytes)
    }
}
