//! The values of quantised weights.

use super::format::by_format;
use super::planes::{QuantRow, load};
use super::{QuantFormat, QuantLayout, ScaleKind, UNIT};
use crate::desc::require_eq;
use crate::{BackendResult, checked_product};

/// What turns the sixteen quants of half a block into weights: `scale · (q − zero) − min`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct QuantScale {
    /// The factor.
    pub(super) scale: f32,
    /// The zero point, a whole number from 0 to 255.
    pub(super) zero: f32,
    /// What is subtracted, in formats with minima.
    pub(super) min: f32,
}

#[inline(always)]
fn weight(QuantScale { scale, zero, min }: QuantScale, quant: f32) -> f32 {
    scale * (quant - zero) - min
}

#[inline(always)]
fn magnitude(QuantScale { scale, zero, min }: QuantScale, quant: f32) -> f32 {
    scale.abs() * (quant.abs() + zero) + min.abs()
}

/// Methods are inlined, loops are written out and there are no closures, so that callers' vector instructions reach all of it.
impl QuantRow<'_> {
    /// The 128 weights of a unit, those of the padding too; zeros for a unit that the row doesn't have.
    ///
    /// Products of scales and quants are exact in f32, so a weight is rounded at most once, where `dmin · m`
    /// is subtracted.
    #[inline(always)]
    pub fn dequantize(&self, unit: usize, weights: &mut [f32; UNIT]) {
        if unit >= self.units {
            return weights.fill(0.0);
        }
        by_format!(
            self.format,
            format => QuantRow { format, ..*self }.fill(unit, weights, weight),
            otherwise self.fill_once(unit, weights)
        );
    }

    /// The weights of a unit, not inlined.
    #[inline(never)]
    fn fill_once(&self, unit: usize, weights: &mut [f32; UNIT]) {
        by_format!(self.format, format => QuantRow { format, ..*self }.fill(unit, weights, weight));
    }

    /// The sums of the magnitudes of the terms that make up each weight of a unit, `s · q`, `s · z` and `m`: what
    /// the error of a product that takes these terms one by one is relative to.
    pub fn magnitudes(&self, unit: usize, magnitudes: &mut [f32; UNIT]) {
        if unit >= self.units {
            return magnitudes.fill(0.0);
        }
        self.fill(unit, magnitudes, magnitude);
    }

    #[inline(always)]
    fn fill(&self, unit: usize, numbers: &mut [f32; UNIT], value: impl Fn(QuantScale, f32) -> f32) {
        let scales = self.unit_scales(unit);
        for (word, numbers) in numbers.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let quants = self.floats(unit, word / 4, word % 4);
            for (number, quant) in numbers.iter_mut().zip(quants) {
                *number = value(scales[word / 2], quant);
            }
        }
    }

    /// The scales of the unit's eight half blocks.
    #[inline(always)]
    pub(super) fn unit_scales(&self, unit: usize) -> [QuantScale; 8] {
        let mut scales = [QuantScale::default(); 8];
        let zero = self.format.zero_point().map(f32::from);
        let known = zero.unwrap_or(0.0);
        match self.format.scale_kind() {
            ScaleKind::Block => {
                let halves: [u8; 8] = load(self.scales, 8 * unit);
                for (block, scales) in scales.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    *scales = [QuantScale { scale: half(&halves, block), zero: known, min: 0.0 }; 2];
                }
            }
            ScaleKind::BlockMin => {
                let halves: [u8; 16] = load(self.scales, 16 * unit);
                for (block, scales) in scales.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let [scale, min] = [half(&halves, 2 * block), -half(&halves, 2 * block + 1)];
                    *scales = [QuantScale { scale, zero: known, min }; 2];
                }
            }
            ScaleKind::Exponent => {
                let exponents: [u8; 4] = load(self.scales, 4 * unit);
                for (scales, exponent) in scales.as_chunks_mut::<2>().0.iter_mut().zip(exponents) {
                    *scales = [QuantScale { scale: half_of_e8m0(exponent), zero: known, min: 0.0 }; 2];
                }
            }
            ScaleKind::SuperBlock => {
                let packed: [u8; 16] = load(self.scales, unit / 2 * 16);
                let [d, dmin] = [half(&packed, 0), half(&packed, 1)];
                let [factors, minima] = scales_and_minima(&packed, unit % 2 == 1);
                for (block, scales) in scales.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let (scale, min) = (d * f32::from(factors[block]), dmin * f32::from(minima[block]));
                    *scales = [QuantScale { scale, zero: known, min }; 2];
                }
            }
            ScaleKind::SuperBlockSigned => {
                let packed: [u8; 8] = load(self.scales, unit / 2 * 8);
                let d = half(&packed, 0);
                let (above, low) =
                    (u16::from_le_bytes(load(&packed, 2)), u32::from_le_bytes(load(&packed, 4)));
                for (block, scales) in scales.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let i = unit % 2 * 4 + block;
                    let sc = low >> (4 * i) & 15 | (u32::from(above) >> (2 * i) & 3) << 4;
                    *scales = [QuantScale { scale: d * (sc as i32 - 32) as f32, zero: known, min: 0.0 }; 2];
                }
            }
            ScaleKind::HalfBlock => {
                let d = half(self.extra, unit / 2);
                let of_halves: [u8; 8] = load(self.scales, 8 * unit);
                for (scale, sc) in scales.iter_mut().zip(of_halves) {
                    *scale = QuantScale { scale: d * f32::from(sc as i8), zero: known, min: 0.0 };
                }
            }
            ScaleKind::HalfBlockMin => {
                let both: [u8; 4] = load(self.extra, unit / 2 * 4);
                let [d, dmin] = [half(&both, 0), half(&both, 1)];
                let of_halves: [u8; 8] = load(self.scales, 8 * unit);
                for (scale, packed) in scales.iter_mut().zip(of_halves) {
                    let [sc, m] = [packed & 15, packed >> 4].map(f32::from);
                    *scale = QuantScale { scale: d * sc, zero: known, min: dmin * m };
                }
            }
            ScaleKind::Group => {
                // Only U4 has groups.
                let group = self.format.block_elements();
                // A power of two.
                let shift = group.trailing_zeros();
                if group >= UNIT {
                    scales = [self.group_scale((UNIT * unit) >> shift, zero); 8];
                } else {
                    for (i, scale) in scales.iter_mut().enumerate() {
                        *scale = self.group_scale((UNIT * unit + 16 * i) >> shift, zero);
                    }
                }
            }
        }
        scales
    }

    /// The scale of a group of U4, with its own zero point unless one is known; past the last group of a row there is only padding.
    #[inline(always)]
    fn group_scale(&self, group: usize, zero: Option<f32>) -> QuantScale {
        if 2 * group >= self.scales.len() {
            return QuantScale::default();
        }
        let zero = zero.unwrap_or_else(|| f32::from(self.extra[group]));
        QuantScale { scale: half(self.scales, group), zero, min: 0.0 }
    }
}

/// Number `number` of f16 in bytes.
#[inline(always)]
fn half(bytes: &[u8], number: usize) -> f32 {
    f32_of_f16(u16::from_le_bytes(load(bytes, 2 * number)))
}

/// The value of an f16, by arithmetic that compilers keep in vectors.
#[inline(always)]
const fn f32_of_f16(bits: u16) -> f32 {
    /// What the exponents' biases differ by.
    const BIAS: u32 = (127 - 15) << 23;
    let sign = (bits as u32 & 0x8000) << 16;
    let magnitude = (bits as u32 & 0x7FFF) << 13;
    // Infinities and NaN have the largest exponent of f32, too.
    let normal = magnitude + if bits & 0x7C00 == 0x7C00 { 2 * BIAS } else { BIAS };
    // Subnormal numbers: fractions behind a one, which is subtracted.
    const ONE: u32 = BIAS + (1 << 23);
    let subnormal = (f32::from_bits(magnitude + ONE) - f32::from_bits(ONE)).to_bits();
    f32::from_bits(sign | if bits & 0x7C00 == 0 { subnormal } else { normal })
}

/// 2^(e − 128), half of a scale of E8M0.
#[inline(always)]
pub(super) const fn half_of_e8m0(exponent: u8) -> f32 {
    // The exponents 0 and 1 are below those of normal numbers.
    let bits = if exponent < 2 { 1 << (21 + exponent) } else { (exponent as u32 - 1) << 23 };
    f32::from_bits(bits)
}

/// The 6-bit scales and minima of the first or the second four of eight sub-blocks, from the 12 bytes behind `d` and `dmin`.
#[inline(always)]
fn scales_and_minima(packed: &[u8; 16], second: bool) -> [[u8; 4]; 2] {
    let s = u32::from_le_bytes(load(packed, 4));
    let m = u32::from_le_bytes(load(packed, 8));
    let both = u32::from_le_bytes(load(packed, 12));
    let (low, above, whole) = (0x0F0F_0F0F, 0x3030_3030, 0x3F3F_3F3F);
    let [s, m] = match second {
        true => [both & low | s >> 2 & above, both >> 4 & low | m >> 2 & above],
        false => [s & whole, m & whole],
    };
    [s.to_le_bytes(), m.to_le_bytes()]
}

/// The weights of a whole matrix, row-major, `rows` × `columns`.
///
/// # Errors
/// [`Shape`](crate::BackendError::Shape) if the format doesn't allow such a matrix, or `planes` or `weights`
/// don't have exactly its size; [`Overflow`](crate::BackendError::Overflow).
pub fn dequantize(
    format: QuantFormat,
    rows: usize,
    columns: usize,
    planes: &[u8],
    weights: &mut [f32],
) -> BackendResult<()> {
    let op = "dequantize";
    let layout = QuantLayout::new(op, format, rows, columns)?;
    require_eq(op, "bytes of the planes", layout.bytes, planes.len())?;
    let elements = checked_product(op, "weights", &[rows, columns])?;
    require_eq(op, "number of weights", elements, weights.len())?;
    let mut unit = [0.0; UNIT];
    for (number, weights) in weights.chunks_exact_mut(columns.max(1)).enumerate() {
        // The planes have the layout's size, so every row is there.
        let Some(row) = layout.row(planes, number) else { continue };
        for (number, weights) in weights.chunks_mut(UNIT).enumerate() {
            row.dequantize(number, &mut unit);
            weights.copy_from_slice(&unit[..weights.len()]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn f16_have_their_values() {
        for bits in 0..=u16::MAX {
            let (got, want) = (f32_of_f16(bits), f16::from_bits(bits).to_f32());
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan(), "{bits:#x}: {got}");
        }
    }
}
