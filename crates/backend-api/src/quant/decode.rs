//! The values of quantised weights.

use half::f16;

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

impl QuantRow<'_> {
    /// The 128 weights of a unit, those of the padding too; zeros for a unit that the row doesn't have.
    ///
    /// Products of scales and quants are exact in f32, so a weight is rounded at most once, where `dmin · m`
    /// is subtracted.
    #[inline(always)]
    pub fn dequantize(&self, unit: usize, weights: &mut [f32; UNIT]) {
        self.unit(unit, weights, |QuantScale { scale, zero, min }, quant| scale * (quant - zero) - min);
    }

    /// The sums of the magnitudes of the terms that make up each weight of a unit, `s · q`, `s · z` and `m`: what
    /// the error of a product that takes these terms one by one is relative to.
    pub fn magnitudes(&self, unit: usize, magnitudes: &mut [f32; UNIT]) {
        self.unit(unit, magnitudes, |QuantScale { scale, zero, min }, quant| {
            scale.abs() * (quant.abs() + zero) + min.abs()
        });
    }

    /// The 128 quants of a unit, those of the padding too, and what turns each sixteen of them into weights; zeros
    /// for a unit that the row doesn't have.
    #[inline(always)]
    pub fn integers(&self, unit: usize, quants: &mut [i8; UNIT]) -> [QuantScale; 8] {
        if unit >= self.units {
            quants.fill(0);
            return [QuantScale::default(); 8];
        }
        let (words, _) = quants.as_chunks_mut::<8>();
        for (number, quants) in words.iter_mut().enumerate() {
            *quants = self.numbers(unit, number / 4, number % 4);
        }
        self.unit_scales(unit)
    }

    #[inline(always)]
    fn unit(&self, unit: usize, weights: &mut [f32; UNIT], value: impl Fn(QuantScale, f32) -> f32) {
        if unit >= self.units {
            return weights.fill(0.0);
        }
        let scales = self.unit_scales(unit);
        let (words, _) = weights.as_chunks_mut::<8>();
        for (number, weights) in words.iter_mut().enumerate() {
            let scale = scales[number / 2];
            let quants = self.numbers(unit, number / 4, number % 4);
            for (weight, quant) in weights.iter_mut().zip(quants) {
                *weight = value(scale, f32::from(quant));
            }
        }
    }

    /// The scales of the unit's eight half blocks.
    #[inline(always)]
    fn unit_scales(&self, unit: usize) -> [QuantScale; 8] {
        let half = |bytes: &[u8], number: usize| f16::from_le_bytes(load(bytes, 2 * number)).to_f32();
        let plain = |scale, zero| QuantScale { scale, zero, min: 0.0 };
        match self.format {
            QuantFormat::Q8_0 => std::array::from_fn(|i| plain(half(self.scales, 4 * unit + i / 2), 0.0)),
            QuantFormat::Q4_0 => std::array::from_fn(|i| plain(half(self.scales, 4 * unit + i / 2), 8.0)),
            QuantFormat::Mxfp4 => {
                let exponents: [u8; 4] = load(self.scales, 4 * unit);
                std::array::from_fn(|i| plain(half_of_e8m0(exponents[i / 2]), 0.0))
            }
            QuantFormat::Q4_K | QuantFormat::Q5_K => {
                let packed: [u8; 16] = load(self.scales, unit / 2 * 16);
                let [d, dmin] = [half(&packed, 0), half(&packed, 1)];
                std::array::from_fn(|i| {
                    let (sc, m) = scale_and_min(&packed, unit % 2 * 4 + i / 2);
                    QuantScale { scale: d * f32::from(sc), zero: 0.0, min: dmin * f32::from(m) }
                })
            }
            QuantFormat::Q6_K => {
                let d = half(self.extra, unit / 2);
                let scales: [u8; 8] = load(self.scales, 8 * unit);
                scales.map(|sc| plain(d * f32::from(sc as i8), 32.0))
            }
            QuantFormat::U4 { group, zero_points } => std::array::from_fn(|i| {
                let group = (UNIT * unit + 16 * i) / group;
                // Past the last group of a row there is only padding.
                if 2 * group >= self.scales.len() {
                    return QuantScale::default();
                }
                let zero = if zero_points { f32::from(self.extra[group]) } else { 8.0 };
                plain(half(self.scales, group), zero)
            }),
        }
    }
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
