//! From the blocks of GGUF files to planes and back.

use super::format::by_format;
use super::planes::{PlanesMut, RowMut, load};
use super::word::{NIBBLES, Word};
use super::{QuantFormat, QuantLayout};
use crate::desc::require_eq;
use crate::{BackendError, BackendResult, checked_product};

/// Packs the blocks of a GGUF tensor into planes. A tensor's `ne[0]` is `columns`, its other extents
/// together are `rows`.
///
/// # Errors
/// [`Shape`](BackendError::Shape) if `columns` is no multiple of the format's block, or `blocks` or `planes`
/// don't have exactly the size of such a matrix; [`Unsupported`](BackendError::Unsupported) for
/// [`QuantFormat::U4`]; [`Overflow`](BackendError::Overflow).
pub fn repack(
    format: QuantFormat,
    rows: usize,
    columns: usize,
    blocks: &[u8],
    planes: &mut [u8],
) -> BackendResult<()> {
    let op = "repack";
    let (layout, of) = blocks_of(op, format, rows, columns, blocks.len())?;
    let mut planes = PlanesMut::zeroed(op, &layout, planes)?;
    if blocks.is_empty() {
        return Ok(());
    }
    let row_bytes = columns / of.elements * of.bytes;
    for (i, blocks) in blocks.chunks_exact(row_bytes).enumerate() {
        let row = planes.row(i);
        by_format!(format, format => repack_row(format, blocks, row));
    }
    Ok(())
}

#[inline(always)]
fn repack_row(format: QuantFormat, blocks: &[u8], row: RowMut<'_>) {
    let Some(of) = Blocks::of(format) else { return };
    let mut row = RowMut { format, ..row };
    for (i, block) in blocks.chunks_exact(of.bytes).enumerate() {
        let words = of.elements / 8;
        for word in (0..words).step_by(8) {
            // A loop of constant length is unrolled, which makes constants of shifts and masks.
            for word in word..words.min(word + 8) {
                row.put(i * words + word, of.quants(word).read(block));
            }
        }
        let (at, len) = of.scales;
        row.scales[i * len..][..len].copy_from_slice(&block[at..at + len]);
        let (at, len) = of.extra;
        row.extra[i * len..][..len].copy_from_slice(&block[at..at + len]);
    }
}

/// The inverse of [`repack`].
///
/// # Errors
/// As [`repack`].
pub fn unpack(
    format: QuantFormat,
    rows: usize,
    columns: usize,
    planes: &[u8],
    blocks: &mut [u8],
) -> BackendResult<()> {
    let op = "unpack";
    let (layout, of) = blocks_of(op, format, rows, columns, blocks.len())?;
    require_eq(op, "bytes of the planes", layout.bytes, planes.len())?;
    let per_row = columns / of.elements;
    blocks.fill(0);
    for (number, block) in blocks.chunks_exact_mut(of.bytes).enumerate() {
        let (row, i) = (number / per_row, number % per_row);
        // The planes have the layout's size, so every row is there.
        let Some(row) = layout.row(planes, row) else { continue };
        for word in 0..of.elements / 8 {
            let place = i * of.elements / 8 + word;
            of.quants(word).write(block, row.word(place / 16, place / 4 % 4, place % 4));
        }
        let (at, len) = of.scales;
        block[at..at + len].copy_from_slice(&row.scales[i * len..][..len]);
        let (at, len) = of.extra;
        block[at..at + len].copy_from_slice(&row.extra[i * len..][..len]);
    }
    Ok(())
}

/// The layout of a matrix and its blocks, of which there are `bytes` bytes.
fn blocks_of(
    op: &'static str,
    format: QuantFormat,
    rows: usize,
    columns: usize,
    bytes: usize,
) -> BackendResult<(QuantLayout, Blocks)> {
    let blocks = Blocks::new(op, format)?;
    let layout = QuantLayout::new(op, format, rows, columns)?;
    let expected = checked_product(op, "blocks", &[rows, columns / blocks.elements, blocks.bytes])?;
    require_eq(op, "bytes of the blocks", expected, bytes)?;
    Ok((layout, blocks))
}

/// What the blocks of a format consist of.
struct Blocks {
    format: QuantFormat,
    elements: usize,
    bytes: usize,
    /// Where the bytes are that go to the plane of the scales, and how many.
    scales: (usize, usize),
    /// As `scales`, for the last plane.
    extra: (usize, usize),
}

impl Blocks {
    fn new(op: &'static str, format: QuantFormat) -> BackendResult<Self> {
        Self::of(format).ok_or_else(|| BackendError::Unsupported { op, need: "a format of GGUF".to_owned() })
    }

    /// The blocks of a format, if GGUF has it.
    #[inline(always)]
    const fn of(format: QuantFormat) -> Option<Self> {
        let (scales, extra) = match format {
            QuantFormat::Q8_0 | QuantFormat::Q4_0 => ((0, 2), (0, 0)),
            QuantFormat::Mxfp4 => ((0, 1), (0, 0)),
            QuantFormat::Q4_K | QuantFormat::Q5_K => ((0, 16), (0, 0)),
            QuantFormat::Q6_K => ((192, 16), (208, 2)),
            QuantFormat::U4 { .. } => ((0, 0), (0, 0)),
        };
        match format.block_bytes() {
            Some(bytes) => Some(Self { format, elements: format.block_elements(), bytes, scales, extra }),
            None => None,
        }
    }

    /// Where the eight quants of a block's word are.
    #[inline(always)]
    const fn quants(&self, word: usize) -> Place {
        // The block of 32 that the word belongs to, and its place there.
        let (t, j) = (word / 4, word % 4);
        match self.format {
            QuantFormat::Q8_0 => Place { low: (2 + 8 * j, 0, u64::MAX), high: (0, 0, 0) },
            QuantFormat::Q4_0 => nibbles(2 + 8 * (j % 2), j >= 2, (0, 0, 0)),
            QuantFormat::Mxfp4 => nibbles(1 + 8 * (j % 2), j >= 2, (0, 0, 0)),
            QuantFormat::Q5_K => {
                let fifth = (16 + 8 * j, t as u32, 0x0101_0101_0101_0101);
                nibbles(48 + 32 * (t / 2) + 8 * j, t % 2 == 1, fifth)
            }
            QuantFormat::Q6_K => {
                let (half, group) = (t / 4, t % 4);
                let above = (128 + 32 * half + 8 * j, 2 * group as u32, 0x0303_0303_0303_0303);
                nibbles(64 * half + 32 * (group % 2) + 8 * j, group >= 2, above)
            }
            _ => nibbles(16 + 32 * (t / 2) + 8 * j, t % 2 == 1, (0, 0, 0)),
        }
    }
}

/// Bits of eight consecutive bytes: where those begin, how far to shift them, and which bits are meant.
type Bits = (usize, u32, u64);

/// Where eight quants are in a block.
struct Place {
    low: Bits,
    /// Bits 4 and up; none if the mask is 0.
    high: Bits,
}

/// Quants whose low bits are the lower or the upper nibbles of bytes.
#[inline(always)]
const fn nibbles(at: usize, upper: bool, high: Bits) -> Place {
    Place { low: (at, if upper { 4 } else { 0 }, NIBBLES), high }
}

impl Place {
    #[inline(always)]
    fn read(&self, block: &[u8]) -> Word {
        let bits = |(at, shift, mask): Bits| u64::from_le_bytes(load(block, at)) >> shift & mask;
        let high = if self.high.2 == 0 { 0 } else { bits(self.high) };
        bits(self.low) | high << 4
    }

    /// Sets the bits, which must be 0 before.
    fn write(&self, block: &mut [u8], quants: Word) {
        let mut set = |(at, shift, mask): Bits, word: Word| {
            let bytes = ((word & mask) << shift).to_le_bytes();
            block[at..at + 8].iter_mut().zip(bytes).for_each(|(byte, bits)| *byte |= bits);
        };
        set(self.low, quants);
        if self.high.2 != 0 {
            set(self.high, quants >> 4);
        }
    }
}
