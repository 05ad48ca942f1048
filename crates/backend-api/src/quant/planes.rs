//! Quants and scales in the planes, word by word.

use super::layout::QuantPlane;
use super::word::{
    Word, deinterleave, deinterleave_pairs, floats_of_e2m1, floats_of_iq4, floats_of_nibbles,
    floats_of_pairs, gather_bits, gather_pairs, interleave, interleave_pairs, scatter_bits, scatter_pairs,
};
use super::{QuantCode, QuantFormat, QuantLayout};
use crate::BackendResult;
use crate::desc::require_eq;

/// Where the word `j` of a unit's block lies in the plane of the quants, in bytes from the row's start; of codes of two bits, of
/// which a `u32` has two words, where that one does.
#[inline(always)]
const fn quant_offset(code: QuantCode, unit: usize, block: usize, j: usize) -> usize {
    match code {
        QuantCode::Eight => 128 * unit + 32 * j + 8 * block,
        QuantCode::Two | QuantCode::Three => 32 * unit + 16 * (j / 2) + 4 * block,
        _ => 64 * unit + 16 * j + 4 * block,
    }
}

/// Where the upper bits of the word lie in their plane, for codes that have one.
#[inline(always)]
const fn high_offset(code: QuantCode, unit: usize, block: usize, j: usize) -> usize {
    match code {
        QuantCode::Six => 32 * unit + 8 * j + 2 * block,
        _ => 16 * unit + 4 * j + block,
    }
}

/// The planes of a matrix that is written.
#[derive(Debug)]
pub(super) struct PlanesMut<'a> {
    layout: &'a QuantLayout,
    bytes: &'a mut [u8],
}

impl<'a> PlanesMut<'a> {
    /// The planes in `bytes`, all zero.
    ///
    /// # Errors
    /// [`Shape`](crate::BackendError::Shape) if they don't have the layout's size.
    pub(super) fn zeroed(
        op: &'static str,
        layout: &'a QuantLayout,
        bytes: &'a mut [u8],
    ) -> BackendResult<Self> {
        require_eq(op, "bytes of the planes", layout.bytes, bytes.len())?;
        bytes.fill(0);
        Ok(Self { layout, bytes })
    }

    /// A row of the matrix, which is there.
    pub(super) fn row(&mut self, row: usize) -> RowMut<'_> {
        let QuantLayout { format, quants, high, scales, extra, .. } = *self.layout;
        let mut rest = &mut *self.bytes;
        let mut before = 0;
        // Planes lie one behind the other; those that a format doesn't have are empty.
        let mut part = |plane: QuantPlane| {
            let first = if plane.row_bytes == 0 { before } else { plane.offset + row * plane.row_bytes };
            let (_, from) = std::mem::take(&mut rest).split_at_mut(first - before);
            let (part, behind) = from.split_at_mut(plane.row_bytes);
            (rest, before) = (behind, first + plane.row_bytes);
            part
        };
        RowMut { format, quants: part(quants), high: part(high), scales: part(scales), extra: part(extra) }
    }
}

/// One row of a quantised matrix that is written.
#[derive(Debug)]
pub(super) struct RowMut<'a> {
    pub(super) format: QuantFormat,
    pub(super) quants: &'a mut [u8],
    pub(super) high: &'a mut [u8],
    pub(super) scales: &'a mut [u8],
    /// Super-blocks' scales, or zero points.
    pub(super) extra: &'a mut [u8],
}

impl RowMut<'_> {
    /// Puts eight quants to their place; `word` counts the words of the row.
    #[inline(always)]
    pub(super) fn put(&mut self, word: usize, quants: Word) {
        let (unit, block, j) = (word / 16, word / 4 % 4, word % 4);
        let code = self.format.code();
        let at = quant_offset(code, unit, block, j);
        match code {
            QuantCode::Eight => self.quants[at..at + 8].copy_from_slice(&quants.to_le_bytes()),
            QuantCode::Two | QuantCode::Three => {
                // Both words of the `u32` were 0 before.
                let both =
                    u32::from_le_bytes(load(self.quants, at)) | interleave_pairs(quants) << (8 * (j % 2));
                self.quants[at..at + 4].copy_from_slice(&both.to_le_bytes());
            }
            _ => self.quants[at..at + 4].copy_from_slice(&interleave(quants).to_le_bytes()),
        }
        let at = high_offset(code, unit, block, j);
        match code {
            QuantCode::Three => self.high[at] = gather_bits(quants >> 2),
            QuantCode::Five => self.high[at] = gather_bits(quants >> 4),
            QuantCode::Six => {
                self.high[at..at + 2].copy_from_slice(&gather_pairs(quants >> 4).to_le_bytes());
            }
            _ => {}
        }
    }
}

/// One row of a quantised matrix.
#[derive(Clone, Copy, Debug)]
pub struct QuantRow<'a> {
    pub(super) format: QuantFormat,
    pub(super) units: usize,
    pub(super) quants: &'a [u8],
    pub(super) high: &'a [u8],
    pub(super) scales: &'a [u8],
    pub(super) extra: &'a [u8],
}

impl QuantLayout {
    /// A row of the matrix in `planes`; `None` if there is no such row, or the planes end before its end.
    #[must_use]
    pub fn row<'a>(&self, planes: &'a [u8], row: usize) -> Option<QuantRow<'a>> {
        if row >= self.rows {
            return None;
        }
        let part = |plane: QuantPlane| {
            if plane.row_bytes == 0 {
                return Some(&[][..]);
            }
            let first = plane.row_bytes.checked_mul(row)?.checked_add(plane.offset)?;
            planes.get(first..)?.get(..plane.row_bytes)
        };
        Some(QuantRow {
            format: self.format,
            units: self.units,
            quants: part(self.quants)?,
            high: part(self.high)?,
            scales: part(self.scales)?,
            extra: part(self.extra)?,
        })
    }
}

impl QuantRow<'_> {
    /// The numbers that the eight quants at the place `j` of a unit's block stand for, as f32.
    #[inline(always)]
    pub(super) fn floats(&self, unit: usize, block: usize, j: usize) -> [f32; 8] {
        let code = self.format.code();
        let at = quant_offset(code, unit, block, j);
        match code {
            QuantCode::Eight => {
                let bytes: [u8; 8] = load(self.quants, at);
                let mut floats = [0.0; 8];
                for (float, byte) in floats.iter_mut().zip(bytes) {
                    *float = f32::from(byte as i8);
                }
                return floats;
            }
            QuantCode::Two | QuantCode::Three => {
                let pairs = u32::from_le_bytes(load(self.quants, at)) >> (8 * (j % 2));
                let above =
                    if code == QuantCode::Three { self.high[high_offset(code, unit, block, j)] } else { 0 };
                return floats_of_pairs(pairs, u32::from(above));
            }
            _ => {}
        }
        let nibbles = u32::from_le_bytes(load(self.quants, at));
        let at = high_offset(code, unit, block, j);
        match code {
            QuantCode::E2m1 => floats_of_e2m1(nibbles),
            QuantCode::Iq4 => floats_of_iq4(nibbles),
            QuantCode::Five => floats_of_nibbles(nibbles, u32::from(self.high[at]), 1),
            QuantCode::Six => {
                floats_of_nibbles(nibbles, u32::from(u16::from_le_bytes(load(self.high, at))), 2)
            }
            _ => floats_of_nibbles(nibbles, 0, 0),
        }
    }

    /// The eight quants at the place `j` of a unit's block.
    #[inline(always)]
    pub(super) fn word(&self, unit: usize, block: usize, j: usize) -> Word {
        let code = self.format.code();
        let at = quant_offset(code, unit, block, j);
        let low = match code {
            QuantCode::Eight => return u64::from_le_bytes(load(self.quants, at)),
            QuantCode::Two | QuantCode::Three => {
                deinterleave_pairs(u32::from_le_bytes(load(self.quants, at)) >> (8 * (j % 2)))
            }
            _ => deinterleave(u32::from_le_bytes(load(self.quants, at))),
        };
        let at = high_offset(code, unit, block, j);
        match code {
            QuantCode::Three => low | scatter_bits(self.high[at]) << 2,
            QuantCode::Five => low | scatter_bits(self.high[at]) << 4,
            QuantCode::Six => low | scatter_pairs(u16::from_le_bytes(load(self.high, at))) << 4,
            _ => low,
        }
    }
}

/// `N` bytes, which are there.
#[inline(always)]
pub(super) fn load<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut loaded = [0; N];
    loaded.copy_from_slice(&bytes[at..at + N]);
    loaded
}
