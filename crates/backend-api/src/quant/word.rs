//! Words of eight consecutive quants, as one byte each and as bits of the planes.

/// Eight quants, the first in the lowest byte.
pub(super) type Word = u64;

/// The low four bits of each byte.
pub(super) const NIBBLES: u64 = 0x0F0F_0F0F_0F0F_0F0F;

/// Bit 0 of each byte.
pub(super) const ONES: u64 = 0x0101_0101_0101_0101;

/// Bits 0 and 1 of each byte.
pub(super) const PAIRS: u64 = 0x0303_0303_0303_0303;

/// The bits of `mask` in the bytes 0, 2, 4 and 6, as the product with `factor` has them in its upper 16 bits;
/// those of the bytes 1, 3, 5 and 7 likewise in the upper half of the result.
#[inline(always)]
fn gather_halves(word: Word, mask: u64, factor: u64) -> u32 {
    let half = |bits: u64| (bits & mask).wrapping_mul(factor) >> 48;
    (half(word) | half(word >> 8) << 16) as u32
}

/// The low nibbles of the bytes 0…7, in the order 0, 2, 4, 6, 1, 3, 5, 7.
#[inline(always)]
pub(super) fn interleave(word: Word) -> u32 {
    // The factor moves bits 0, 16, 32 and 48 to 48, 52, 56 and 60; no two of the partial products share a bit.
    gather_halves(word, 0x000F_000F_000F_000F, 0x0001_0010_0100_1000)
}

/// The inverse of [`interleave`].
#[inline(always)]
pub(super) fn deinterleave(nibbles: u32) -> Word {
    let half = |nibbles: u32| {
        let nibbles = u64::from(nibbles & 0xFFFF);
        let pairs = (nibbles | nibbles << 24) & 0x0000_00FF_0000_00FF;
        (pairs | pairs << 12) & 0x000F_000F_000F_000F
    };
    half(nibbles) | half(nibbles >> 16) << 8
}

/// Where the nibbles are that [`deinterleave`] makes bytes of.
const SHIFTS: [u32; 8] = [0, 16, 4, 20, 8, 24, 12, 28];

/// What [`deinterleave`] makes of nibbles, as f32, each with the next `count` of the bits above it.
#[inline(always)]
pub(super) fn floats_of_nibbles(nibbles: u32, above: u32, count: u32) -> [f32; 8] {
    let mut floats = [0.0; 8];
    for i in 0..8 {
        let above = above >> (count * i as u32) & ((1 << count) - 1);
        floats[i] = (nibbles >> SHIFTS[i] & 15 | above << 4) as i32 as f32;
    }
    floats
}

/// The low two bits of the bytes 0…7: of 0, 2, 4 and 6 in bits 0 to 7, of 1, 3, 5 and 7 in bits 16 to 23.
#[inline(always)]
pub(super) fn interleave_pairs(word: Word) -> u32 {
    // The factor moves bits 0, 16, 32 and 48 to 48, 50, 52 and 54; no two of the partial products share a bit there.
    gather_halves(word, 0x0003_0003_0003_0003, 0x0001_0004_0010_0040)
}

/// The inverse of [`interleave_pairs`], whatever the other bits are.
#[inline(always)]
pub(super) fn deinterleave_pairs(pairs: u32) -> Word {
    let mut bytes = [0; 8];
    for i in 0..8 {
        bytes[i] = (pairs >> PAIR_SHIFTS[i] & 3) as u8;
    }
    u64::from_le_bytes(bytes)
}

/// Where the pairs of bits are that [`deinterleave_pairs`] makes bytes of.
const PAIR_SHIFTS: [u32; 8] = [0, 16, 2, 18, 4, 20, 6, 22];

/// What [`deinterleave_pairs`] makes of pairs of bits, as f32, each with one of the bits above it.
#[inline(always)]
pub(super) fn floats_of_pairs(pairs: u32, above: u32) -> [f32; 8] {
    let mut floats = [0.0; 8];
    for i in 0..8 {
        floats[i] = (pairs >> PAIR_SHIFTS[i] & 3 | (above >> i & 1) << 2) as i32 as f32;
    }
    floats
}

/// The values of IQ4_NL and IQ4_XS, `kvalues_iq4nl` of ggml's `ggml-common.h`.
const IQ4: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// What [`deinterleave`] makes of nibbles that are places of [`IQ4`], as its values.
#[inline(always)]
pub(super) fn floats_of_iq4(nibbles: u32) -> [f32; 8] {
    let mut floats = [0.0; 8];
    for i in 0..8 {
        floats[i] = f32::from(IQ4[(nibbles >> SHIFTS[i] & 15) as usize]);
    }
    floats
}

/// The values of [`IQ4`] whose places are in the low four bits of each byte, as i8.
#[inline(always)]
pub(super) fn values_of_iq4(codes: Word) -> Word {
    let mut bytes = codes.to_le_bytes();
    for byte in &mut bytes {
        *byte = IQ4[usize::from(*byte & 15)] as u8;
    }
    u64::from_le_bytes(bytes)
}

/// What [`deinterleave`] makes of nibbles that are numbers of E2M1, twice their values.
#[inline(always)]
pub(super) fn floats_of_e2m1(nibbles: u32) -> [f32; 8] {
    /// Twice the magnitudes, the smallest in the lowest bits.
    const MAGNITUDES: u32 = 0xC864_3210;
    let mut floats = [0.0; 8];
    for i in 0..8 {
        let code = nibbles >> SHIFTS[i];
        let magnitude = (MAGNITUDES >> (4 * (code & 7)) & 15) as i32;
        floats[i] = if code & 8 == 0 { magnitude } else { -magnitude } as f32;
    }
    floats
}

/// Spreads fields of bits over the bytes of a word: each shift and mask halves them.
#[inline(always)]
fn expand(x: u64, steps: [(u32, u64); 3]) -> Word {
    steps.into_iter().fold(x, |x, (shift, mask)| (x | x << shift) & mask)
}

/// Packs fields of bits from the bytes of a word: each shift and mask joins pairs of them, as the inverse of [`expand`].
#[inline(always)]
fn compress(word: Word, steps: [(u32, u64); 3]) -> u64 {
    steps.into_iter().fold(word, |x, (shift, mask)| (x | x >> shift) & mask)
}

/// Nibbles in their order, the first in the lowest bits, to bytes.
pub(super) fn from_nibbles(nibbles: u32) -> Word {
    expand(nibbles.into(), [(16, 0x0000_FFFF_0000_FFFF), (8, 0x00FF_00FF_00FF_00FF), (4, NIBBLES)])
}

/// The inverse of [`from_nibbles`].
pub(super) fn to_nibbles(word: Word) -> u32 {
    let steps = [(4, 0x00FF_00FF_00FF_00FF), (8, 0x0000_FFFF_0000_FFFF), (16, 0xFFFF_FFFF)];
    compress(word & NIBBLES, steps) as u32
}

/// Bit 0 of each byte, byte i to bit i.
#[inline(always)]
pub(super) fn gather_bits(word: Word) -> u8 {
    // The factor moves bit 8i to bit 56 + i; no two of the partial products share a bit.
    ((word & ONES).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// The inverse of [`gather_bits`].
#[inline(always)]
pub(super) fn scatter_bits(bits: u8) -> Word {
    // Bit i of copy i, brought to bit 0 of its byte: what carries out of 0x7F + x is whether x isn't 0.
    let copies = u64::from(bits).wrapping_mul(ONES) & 0x8040_2010_0804_0201;
    ((copies + 0x7F7F_7F7F_7F7F_7F7F) | copies) >> 7 & ONES
}

/// Bits 0 and 1 of each byte, byte i to bits 2i and 2i + 1.
#[inline(always)]
pub(super) fn gather_pairs(word: Word) -> u16 {
    compress(word & PAIRS, [(6, 0x000F_000F_000F_000F), (12, 0x0000_00FF_0000_00FF), (24, 0xFFFF)]) as u16
}

/// The inverse of [`gather_pairs`].
#[inline(always)]
pub(super) fn scatter_pairs(bits: u16) -> Word {
    expand(bits.into(), [(24, 0x0000_00FF_0000_00FF), (12, 0x000F_000F_000F_000F), (6, PAIRS)])
}

/// Twice the values of numbers of E2M1, which are in the low four bits of each byte, as i8.
#[inline(always)]
pub(super) fn doubled_e2m1(codes: Word) -> Word {
    // Up to 3, a number is its magnitude; from 4 on, the two lowest bits count twice, and four times where both are set.
    let large = codes >> 2 & ONES;
    let low = codes & (large << 1 | large);
    let both = low & low >> 1 & ONES;
    let magnitudes = (codes & 0x0707_0707_0707_0707) + low + (both << 1);
    let signs = codes >> 3 & ONES;
    let negative = (signs << 8).wrapping_sub(signs);
    // Numbers that are 128 larger pass no byte.
    (0x8080_8080_8080_8080 + magnitudes - ((magnitudes & negative) << 1)) ^ 0x8080_8080_8080_8080
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that differ in every byte.
    fn words() -> impl Iterator<Item = u64> {
        (1..2000u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    #[test]
    fn weights_lie_in_the_order_of_the_layout() {
        let word = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(interleave(word), 0x7531_6420);
        assert_eq!(to_nibbles(word), 0x7654_3210);
        assert_eq!(interleave_pairs(word), 0b11_01_11_01 << 16 | 0b10_00_10_00);
        assert_eq!(gather_bits(word), 0b1010_1010);
        assert_eq!(gather_pairs(word), 0b11_10_01_00_11_10_01_00);
    }

    #[test]
    fn twice_the_values_of_e2m1() {
        let values = |first: u8| {
            let codes = std::array::from_fn(|i| first + i as u8);
            doubled_e2m1(u64::from_le_bytes(codes)).to_le_bytes().map(u8::cast_signed)
        };
        assert_eq!(values(0), [0, 1, 2, 3, 4, 6, 8, 12]);
        assert_eq!(values(8), [0, -1, -2, -3, -4, -6, -8, -12]);
    }

    #[test]
    fn every_packing_has_its_inverse() {
        for word in words() {
            assert_eq!(deinterleave(interleave(word)), word & NIBBLES);
            let bytes = (word & NIBBLES).to_le_bytes();
            let nibbles = interleave(word);
            assert_eq!(floats_of_nibbles(nibbles, 0, 0), bytes.map(f32::from));
            assert_eq!(
                floats_of_e2m1(nibbles),
                doubled_e2m1(word & NIBBLES).to_le_bytes().map(|x| f32::from(x as i8))
            );
            let sixth = (word & (NIBBLES | PAIRS << 4)).to_le_bytes();
            assert_eq!(
                floats_of_nibbles(nibbles, u32::from(gather_pairs(word >> 4)), 2),
                sixth.map(f32::from)
            );
            assert_eq!(floats_of_iq4(nibbles), values_of_iq4(word).to_le_bytes().map(|x| f32::from(x as i8)));
            let pairs = interleave_pairs(word);
            assert_eq!(deinterleave_pairs(pairs | 0xFF00_FF00), word & PAIRS);
            let third = (word & (PAIRS | ONES << 2)).to_le_bytes();
            assert_eq!(floats_of_pairs(pairs, u32::from(gather_bits(word >> 2))), third.map(f32::from));
            assert_eq!(from_nibbles(to_nibbles(word)), word & NIBBLES);
            assert_eq!(scatter_bits(gather_bits(word)), word & ONES);
            assert_eq!(scatter_pairs(gather_pairs(word)), word & PAIRS);
        }
    }
}
