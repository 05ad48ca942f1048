//! Groups of 4-bit weights, from the layouts of ONNX Runtime, GPTQ and AWQ.

use half::f16;

use super::planes::{PlanesMut, load};
use super::word::{Word, from_nibbles, to_nibbles};
use super::{QuantFormat, QuantLayout, UNIT};
use crate::desc::{require_eq, require_multiple};
use crate::{BackendError, BackendResult, checked_product};

/// Scales of groups, little-endian.
#[derive(Clone, Copy, Debug)]
pub enum GroupScales<'a> {
    /// f16.
    F16(&'a [u8]),
    /// f32, of which each must be exactly an f16.
    F32(&'a [u8]),
}

/// The weights of ONNX Runtime's operator `MatMulNBits` with 4 bits: `rows` is its N, `columns` its K.
#[derive(Clone, Copy, Debug)]
pub struct MatMulNBits<'a> {
    /// Rows of the matrix.
    pub rows: usize,
    /// Weights in a row.
    pub columns: usize,
    /// Weights in a group (`block_size`).
    pub group: usize,
    /// Quants, `[rows, groups, group / 2]` bytes, low nibble first.
    pub b: &'a [u8],
    /// Scales, `[rows, groups]`.
    pub scales: GroupScales<'a>,
    /// Zero points, `[rows, (groups + 1) / 2]` bytes, low nibble first.
    pub zero_points: Option<&'a [u8]>,
}

/// A linear layer of GPTQ with 4 bits. `rows` are the layer's outputs, `columns` its inputs; both are
/// multiples of 8. A layer with one group for all inputs has the group `columns.next_power_of_two()`.
#[derive(Clone, Copy, Debug)]
pub struct Gptq<'a> {
    /// Rows of the matrix.
    pub rows: usize,
    /// Weights in a row.
    pub columns: usize,
    /// Weights in a group.
    pub group: usize,
    /// Quants, i32 `[columns / 8, rows]`, eight consecutive weights of a row in each.
    pub qweight: &'a [u8],
    /// Zero points, i32 `[groups, rows / 8]`.
    pub qzeros: &'a [u8],
    /// Scales, f16 `[groups, rows]`.
    pub scales: &'a [u8],
    /// The group of each weight, i32 `[columns]`, if the checkpoint has it. Groups must be consecutive: a
    /// reordering of the columns (`desc_act`) can't be represented.
    pub g_idx: Option<&'a [u8]>,
    /// Whether zero points are stored less 1, as in checkpoints of the first version.
    pub zeros_less_one: bool,
}

/// A linear layer of AWQ with 4 bits (its version "gemm"). `rows` are the layer's outputs, a multiple of 8,
/// `columns` its inputs.
#[derive(Clone, Copy, Debug)]
pub struct Awq<'a> {
    /// Rows of the matrix.
    pub rows: usize,
    /// Weights in a row.
    pub columns: usize,
    /// Weights in a group.
    pub group: usize,
    /// Quants, i32 `[columns, rows / 8]`: eight rows in each, in the order 0, 2, 4, 6, 1, 3, 5, 7.
    pub qweight: &'a [u8],
    /// Zero points, i32 `[groups, rows / 8]`, packed as `qweight`.
    pub qzeros: &'a [u8],
    /// Scales, f16 `[groups, rows]`.
    pub scales: &'a [u8],
}

/// The nibble of an AWQ word that holds the row `r` of eight.
const AWQ_NIBBLE: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

impl MatMulNBits<'_> {
    /// The format of the planes.
    #[must_use]
    pub const fn format(&self) -> QuantFormat {
        QuantFormat::U4 { group: self.group, zero_points: self.zero_points.is_some() }
    }

    /// Packs the weights into planes of [`format`](Self::format).
    ///
    /// # Errors
    /// [`Shape`](BackendError::Shape) for sizes that don't fit each other;
    /// [`Unsupported`](BackendError::Unsupported) for a scale that is no f16;
    /// [`Overflow`](BackendError::Overflow).
    pub fn repack(&self, planes: &mut [u8]) -> BackendResult<()> {
        let op = "repack";
        let &Self { rows, columns, group, b, .. } = self;
        let layout = QuantLayout::new(op, self.format(), rows, columns)?;
        let groups = columns.div_ceil(group);
        require_bytes(op, "bytes of b", &[rows, groups, group / 2], b)?;
        let scales = match self.scales {
            GroupScales::F16(scales) => scales.to_vec(),
            GroupScales::F32(scales) => exact_f16(op, scales)?,
        };
        require_bytes(op, "bytes of the scales", &[rows, groups, 2], &scales)?;
        let zero_bytes = groups.div_ceil(2);
        if let Some(zeros) = self.zero_points {
            require_bytes(op, "bytes of the zero points", &[rows, zero_bytes], zeros)?;
        }
        // Groups are whole, so a row has a whole number of words.
        let row_bytes = groups * (group / 2);
        let zero = |row: usize, number: usize| {
            let zeros = self.zero_points.unwrap_or_default();
            zeros[row * zero_bytes + number / 2] >> (4 * (number % 2)) & 15
        };
        let source = Source {
            word: |row, word| from_nibbles(u32::from_le_bytes(load(b, row * row_bytes + 4 * word))),
            scale: |row, number| load(&scales, 2 * (row * groups + number)),
            zero: self.zero_points.is_some().then_some(zero),
        };
        source.pack(op, &layout, planes)
    }
}

impl Gptq<'_> {
    /// The format of the planes.
    #[must_use]
    pub const fn format(&self) -> QuantFormat {
        QuantFormat::U4 { group: self.group, zero_points: true }
    }

    /// Packs the weights into planes of [`format`](Self::format).
    ///
    /// # Errors
    /// [`Shape`](BackendError::Shape) for sizes that don't fit each other;
    /// [`Unsupported`](BackendError::Unsupported) for reordered columns; [`Overflow`](BackendError::Overflow).
    pub fn repack(&self, planes: &mut [u8]) -> BackendResult<()> {
        let &Self { rows, columns, group, qweight, qzeros, scales, .. } = self;
        let op = "repack";
        let (in_eights, words) = ([("rows", rows), ("columns", columns)], [columns / 8, rows]);
        let tensors = [qweight, qzeros, scales];
        let layout = layout_of_words(op, self.format(), [rows, columns], &in_eights, words, tensors)?;
        if let Some(indices) = self.g_idx {
            require_bytes(op, "bytes of g_idx", &[columns, 4], indices)?;
            let (indices, _) = indices.as_chunks::<4>();
            let is_plain =
                |(i, index): (usize, &[u8; 4])| usize::try_from(u32::from_le_bytes(*index)) == Ok(i / group);
            if !indices.iter().enumerate().all(is_plain) {
                let need = "groups of consecutive columns (a checkpoint without desc_act)".to_owned();
                return Err(BackendError::Unsupported { op, need });
            }
        }
        let less = u8::from(self.zeros_less_one);
        let source = Source {
            word: |row, word| from_nibbles(u32::from_le_bytes(load(qweight, 4 * (word * rows + row)))),
            scale: |row, number| load(scales, 2 * (number * rows + row)),
            zero: Some(|row, number| nibble(qzeros, number * rows + row) + less),
        };
        source.pack(op, &layout, planes)
    }
}

impl Awq<'_> {
    /// The format of the planes.
    #[must_use]
    pub const fn format(&self) -> QuantFormat {
        QuantFormat::U4 { group: self.group, zero_points: true }
    }

    /// Packs the weights into planes of [`format`](Self::format).
    ///
    /// # Errors
    /// [`Shape`](BackendError::Shape) for sizes that don't fit each other;
    /// [`Overflow`](BackendError::Overflow).
    pub fn repack(&self, planes: &mut [u8]) -> BackendResult<()> {
        let &Self { rows, columns, qweight, qzeros, scales, .. } = self;
        let (op, in_eights, words) = ("repack", [("rows", rows)], [columns, rows / 8]);
        let tensors = [qweight, qzeros, scales];
        let layout = layout_of_words(op, self.format(), [rows, columns], &in_eights, words, tensors)?;
        let place = |row: usize| row / 8 * 8 + AWQ_NIBBLE[row % 8];
        let quant = |row, column| nibble(qweight, column * rows + place(row));
        let source = Source {
            word: |row, word| {
                // The last word of a row may end behind its columns.
                let quants = |i| if 8 * word + i < columns { quant(row, 8 * word + i) } else { 0 };
                Word::from_le_bytes(std::array::from_fn(quants))
            },
            scale: |row, number| load(scales, 2 * (number * rows + row)),
            zero: Some(|row, number| nibble(qzeros, number * rows + place(row))),
        };
        source.pack(op, &layout, planes)
    }
}

/// The planes of a matrix whose checkpoint has eight quants in each of `words` words, and zero points likewise. Checks
/// the sizes that have to be multiples of 8, and the bytes of quants, zero points and scales.
fn layout_of_words(
    op: &'static str,
    format: QuantFormat,
    [rows, columns]: [usize; 2],
    in_eights: &[(&'static str, usize)],
    words: [usize; 2],
    [qweight, qzeros, scales]: [&[u8]; 3],
) -> BackendResult<QuantLayout> {
    let layout = QuantLayout::new(op, format, rows, columns)?;
    in_eights.iter().try_for_each(|&(what, size)| require_multiple(op, what, 8, size))?;
    let groups = columns.div_ceil(format.block_elements());
    require_bytes(op, "bytes of qweight", &[words[0], words[1], 4], qweight)?;
    require_bytes(op, "bytes of qzeros", &[groups, rows / 8, 4], qzeros)?;
    require_bytes(op, "bytes of the scales", &[groups, rows, 2], scales)?;
    Ok(layout)
}

/// Unpacks planes of [`QuantFormat::U4`] to the layout of [`MatMulNBits`], with f16 scales. What lies in `b`
/// behind the columns is the group's zero point.
///
/// # Errors
/// [`Shape`](BackendError::Shape) for sizes that don't fit each other, as a zero point above 15 doesn't
/// either; [`Unsupported`](BackendError::Unsupported) for another format;
/// [`Overflow`](BackendError::Overflow).
pub fn to_matmul_nbits(
    format: QuantFormat,
    rows: usize,
    columns: usize,
    planes: &[u8],
    b: &mut [u8],
    scales: &mut [u8],
    zero_points: &mut [u8],
) -> BackendResult<()> {
    let op = "to_matmul_nbits";
    let layout = QuantLayout::new(op, format, rows, columns)?;
    let QuantFormat::U4 { group, zero_points: has_zeros } = format else {
        return Err(BackendError::Unsupported { op, need: "the format u4".to_owned() });
    };
    require_eq(op, "bytes of the planes", layout.bytes, planes.len())?;
    let groups = columns.div_ceil(group);
    require_bytes(op, "bytes of b", &[rows, groups, group / 2], b)?;
    require_bytes(op, "bytes of the scales", &[rows, groups, 2], scales)?;
    let zero_bytes = if has_zeros { groups.div_ceil(2) } else { 0 };
    require_bytes(op, "bytes of the zero points", &[rows, zero_bytes], zero_points)?;
    zero_points.fill(0);
    for number in 0..if groups == 0 { 0 } else { rows } {
        // The planes have the layout's size, so every row is there.
        let Some(row) = layout.row(planes, number) else { continue };
        scales[2 * number * groups..][..2 * groups].copy_from_slice(&row.scales[..2 * groups]);
        let zero = |i: usize| if has_zeros { row.extra[i] } else { 8 };
        for i in 0..groups {
            crate::desc::require_at_most(op, "zero point", 15, usize::from(zero(i)))?;
            if has_zeros {
                zero_points[number * zero_bytes + i / 2] |= zero(i) << (4 * (i % 2));
            }
        }
        let row_words = groups * group / 8;
        for word in 0..row_words {
            let quants = if word < 16 * layout.units {
                row.word(word / 16, word / 4 % 4, word % 4)
            } else {
                Word::from_le_bytes([zero(8 * word / group); 8])
            };
            let at = 4 * (number * row_words + word);
            b[at..at + 4].copy_from_slice(&to_nibbles(quants).to_le_bytes());
        }
    }
    Ok(())
}

/// Where the words, scales and zero points of a matrix are read from, by row and by word or group.
struct Source<W, S, Z> {
    word: W,
    scale: S,
    zero: Option<Z>,
}

impl<W, S, Z> Source<W, S, Z>
where
    W: Fn(usize, usize) -> Word,
    S: Fn(usize, usize) -> [u8; 2],
    Z: Fn(usize, usize) -> u8,
{
    /// Fills the planes. Behind the columns, the quants of the last group are its zero point or next to it.
    fn pack(&self, op: &'static str, layout: &QuantLayout, planes: &mut [u8]) -> BackendResult<()> {
        let &QuantLayout { rows, columns, units, format, .. } = layout;
        let group = format.block_elements();
        let mut planes = PlanesMut::zeroed(op, layout, planes)?;
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        let end = if group < UNIT { columns.next_multiple_of(group) } else { units * UNIT };
        for row in 0..rows {
            let mut packed = planes.row(row);
            for number in 0..columns.div_ceil(group) {
                packed.scales[2 * number..][..2].copy_from_slice(&(self.scale)(row, number));
                if let Some(zero) = &self.zero {
                    packed.extra[number] = zero(row, number);
                }
            }
            let zero = |word| self.zero.as_ref().map_or(8, |zero| zero(row, 8 * word / group).min(15));
            for word in 0..columns.div_ceil(8) {
                let mut quants = (self.word)(row, word).to_le_bytes();
                if let Some(padding) = quants.get_mut(columns - 8 * word..) {
                    padding.fill(zero(word));
                }
                packed.put(word, Word::from_le_bytes(quants));
            }
            for word in columns.div_ceil(8)..end / 8 {
                packed.put(word, Word::from_le_bytes([zero(word); 8]));
            }
        }
        Ok(())
    }
}

fn nibble(words: &[u8], number: usize) -> u8 {
    words[number / 2] >> (4 * (number % 2)) & 15
}

fn require_bytes(op: &'static str, what: &'static str, factors: &[usize], bytes: &[u8]) -> BackendResult<()> {
    require_eq(op, what, checked_product(op, what, factors)?, bytes.len())
}

/// Scales as f16.
fn exact_f16(op: &'static str, scales: &[u8]) -> BackendResult<Vec<u8>> {
    let (scales, rest) = scales.as_chunks::<4>();
    require_eq(op, "bytes behind the scales", 0, rest.len())?;
    let mut halves = Vec::with_capacity(2 * scales.len());
    for &scale in scales {
        let scale = f32::from_le_bytes(scale);
        let half = f16::from_f32(scale);
        if half.to_f32() != scale && !scale.is_nan() {
            let need = format!("scales that are f16, which {scale} isn't");
            return Err(BackendError::Unsupported { op, need });
        }
        halves.extend(half.to_le_bytes());
    }
    Ok(halves)
}
