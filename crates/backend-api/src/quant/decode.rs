//! The values of quantised weights.

use half::f16;

use super::format::by_format;
use super::planes::{QuantRow, load};
use super::{QuantFormat, QuantLayout, UNIT};
use crate::desc::require_eq;
use crate::{BackendResult, checked_product};

/// What turns the sixteen quants of half a block into weights: `scale · (q − zero) − min`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QuantScale {
    /// The factor.
    pub scale: f32,
    /// The zero point, a whole number from 0 to 255.
    pub zero: f32,
    /// What is subtracted, in formats with minima.
    pub min: f32,
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

    /// The 128 quants of a unit, those of the padding too, and what turns each sixteen of them into weights; zeros
    /// for a unit that the row doesn't have.
    #[inline(always)]
    pub fn integers(&self, unit: usize, quants: &mut [i8; UNIT]) -> [QuantScale; 8] {
        if unit >= self.units {
            quants.fill(0);
            return [QuantScale::default(); 8];
        }
        by_format!(self.format, format => QuantRow { format, ..*self }.fill_integers(unit, quants))
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

    #[inline(always)]
    fn fill_integers(&self, unit: usize, quants: &mut [i8; UNIT]) -> [QuantScale; 8] {
        for (word, quants) in quants.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *quants = self.numbers(unit, word / 4, word % 4);
        }
        self.unit_scales(unit)
    }

    /// The scales of the unit's eight half blocks.
    #[inline(always)]
    fn unit_scales(&self, unit: usize) -> [QuantScale; 8] {
        let mut scales = [QuantScale::default(); 8];
        match self.format {
            QuantFormat::Q8_0 | QuantFormat::Q4_0 => {
                let zero = if self.format == QuantFormat::Q4_0 { 8.0 } else { 0.0 };
                for (block, scales) in scales.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    *scales = [QuantScale { scale: half(self.scales, 4 * unit + block), zero, min: 0.0 }; 2];
                }
            }
            QuantFormat::Mxfp4 => {
                let exponents: [u8; 4] = load(self.scales, 4 * unit);
                for (scales, exponent) in scales.as_chunks_mut::<2>().0.iter_mut().zip(exponents) {
                    *scales = [QuantScale { scale: half_of_e8m0(exponent), zero: 0.0, min: 0.0 }; 2];
                }
            }
            QuantFormat::Q4_K | QuantFormat::Q5_K => {
                let packed: [u8; 16] = load(self.scales, unit / 2 * 16);
                let [d, dmin] = [half(&packed, 0), half(&packed, 1)];
                for (block, scales) in scales.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                    let (sc, m) = scale_and_min(&packed, unit % 2 * 4 + block);
                    let (scale, min) = (d * f32::from(sc), dmin * f32::from(m));
                    *scales = [QuantScale { scale, zero: 0.0, min }; 2];
                }
            }
            QuantFormat::Q6_K => {
                let d = half(self.extra, unit / 2);
                let of_halves: [u8; 8] = load(self.scales, 8 * unit);
                for (scale, sc) in scales.iter_mut().zip(of_halves) {
                    *scale = QuantScale { scale: d * f32::from(sc as i8), zero: 32.0, min: 0.0 };
                }
            }
            QuantFormat::U4 { group, zero_points } => {
                for (i, scale) in scales.iter_mut().enumerate() {
                    let group = (UNIT * unit + 16 * i) / group;
                    // Past the last group of a row there is only padding.
                    if 2 * group < self.scales.len() {
                        let zero = if zero_points { f32::from(self.extra[group]) } else { 8.0 };
                        *scale = QuantScale { scale: half(self.scales, group), zero, min: 0.0 };
                    }
                }
            }
        }
        scales
    }
}

/// Number `number` of f16 in bytes.
#[inline(always)]
fn half(bytes: &[u8], number: usize) -> f32 {
    f16::from_le_bytes(load(bytes, 2 * number)).to_f32()
}

/// 2^(e − 128), half of a scale of E8M0.
#[inline(always)]
pub(super) const fn half_of_e8m0(exponent: u8) -> f32 {
    // The exponents 0 and 1 are below those of normal numbers.
    let bits = if exponent < 2 { 1 << (21 + exponent) } else { (exponent as u32 - 1) << 23 };
    f32::from_bits(bits)
}

/// The 6-bit scale and minimum of the sub-block `t` of eight, from `d`, `dmin` and the 12 bytes behind them.
#[inline(always)]
fn scale_and_min(packed: &[u8; 16], t: usize) -> (u8, u8) {
    let s = |i: usize| packed[4 + i];
    if t < 4 {
        return (s(t) & 63, s(t + 4) & 63);
    }
    (s(t + 4) & 15 | s(t - 4) >> 6 << 4, s(t + 4) >> 4 | s(t) >> 6 << 4)
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
