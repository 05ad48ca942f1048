//! From the blocks of GGUF files to planes and back.

use super::format::by_format;
use super::planes::{PlanesMut, RowMut, load};
use super::word::{NIBBLES, ONES, PAIRS, Word, gather_bits, scatter_bits};
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
        if format == QuantFormat::Q3_K {
            row.scales[16 * i..][..16].copy_from_slice(&unpack_scales(load(block, at)));
        } else {
            row.scales[i * len..][..len].copy_from_slice(&block[at..at + len]);
        }
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
        if format == QuantFormat::Q3_K {
            block[at..at + len].copy_from_slice(&pack_scales(load(row.scales, 16 * i)));
        } else {
            block[at..at + len].copy_from_slice(&row.scales[i * len..][..len]);
        }
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
            QuantFormat::Q8_0 | QuantFormat::Q4_0 | QuantFormat::Q5_0 | QuantFormat::IQ4_NL => {
                ((0, 2), (0, 0))
            }
            QuantFormat::Q4_1 | QuantFormat::Q5_1 => ((0, 4), (0, 0)),
            QuantFormat::IQ4_XS => ((0, 8), (0, 0)),
            QuantFormat::Mxfp4 => ((0, 1), (0, 0)),
            QuantFormat::Q2_K => ((0, 16), (80, 4)),
            QuantFormat::Q3_K => ((96, 12), (108, 2)),
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
            QuantFormat::Q8_0 => Place { low: (2 + 8 * j, 0, u64::MAX), high: High::None },
            QuantFormat::Q4_0 | QuantFormat::IQ4_NL => split(2, j, High::None),
            QuantFormat::Q4_1 => split(4, j, High::None),
            QuantFormat::Q5_0 => split(6, j, High::Packed(2 + j)),
            QuantFormat::Q5_1 => split(8, j, High::Packed(4 + j)),
            QuantFormat::IQ4_XS => split(8 + 16 * t, j, High::None),
            QuantFormat::Mxfp4 => split(1, j, High::None),
            QuantFormat::Q2_K => pairs(16 + 32 * (t / 4) + 8 * j, t % 4, High::None),
            QuantFormat::Q3_K => {
                pairs(32 + 32 * (t / 4) + 8 * j, t % 4, High::Spread((8 * j, t as u32, ONES), 2))
            }
            QuantFormat::Q5_K => {
                let fifth = High::Spread((16 + 8 * j, t as u32, ONES), 4);
                nibbles(48 + 32 * (t / 2) + 8 * j, t % 2 == 1, fifth)
            }
            QuantFormat::Q6_K => {
                let (half, group) = (t / 4, t % 4);
                let above = High::Spread((128 + 32 * half + 8 * j, 2 * group as u32, PAIRS), 4);
                nibbles(64 * half + 32 * (group % 2) + 8 * j, group >= 2, above)
            }
            _ => nibbles(16 + 32 * (t / 2) + 8 * j, t % 2 == 1, High::None),
        }
    }
}

/// Bits of eight consecutive bytes: where those begin, how far to shift them, and which bits are meant.
type Bits = (usize, u32, u64);

/// Where eight quants are in a block.
struct Place {
    low: Bits,
    high: High,
}

/// Where the upper bits of eight quants are.
enum High {
    None,
    /// In eight bytes, and how many bits are below them in a quant.
    Spread(Bits, u32),
    /// Bit 4 of each in one byte.
    Packed(usize),
}

/// Quants whose low bits are the lower or the upper nibbles of bytes.
#[inline(always)]
const fn nibbles(at: usize, upper: bool, high: High) -> Place {
    Place { low: (at, if upper { 4 } else { 0 }, NIBBLES), high }
}

/// The word `j` of a block of 32 whose halves are the lower and the upper nibbles of sixteen bytes.
#[inline(always)]
const fn split(at: usize, j: usize, high: High) -> Place {
    nibbles(at + 8 * (j % 2), j >= 2, high)
}

/// Quants whose low bits are one of the four pairs of bits of bytes.
#[inline(always)]
const fn pairs(at: usize, number: usize, high: High) -> Place {
    Place { low: (at, 2 * number as u32, PAIRS), high }
}

impl Place {
    #[inline(always)]
    fn read(&self, block: &[u8]) -> Word {
        let bits = |(at, shift, mask): Bits| u64::from_le_bytes(load(block, at)) >> shift & mask;
        let high = match self.high {
            High::None => 0,
            High::Spread(of, below) => bits(of) << below,
            High::Packed(at) => scatter_bits(block[at]) << 4,
        };
        bits(self.low) | high
    }

    /// Sets the bits, which must be 0 before.
    fn write(&self, block: &mut [u8], quants: Word) {
        let mut set = |(at, shift, mask): Bits, word: Word| {
            let bytes = ((word & mask) << shift).to_le_bytes();
            block[at..at + 8].iter_mut().zip(bytes).for_each(|(byte, bits)| *byte |= bits);
        };
        set(self.low, quants);
        match self.high {
            High::None => {}
            High::Spread(of, below) => set(of, quants >> below),
            High::Packed(at) => block[at] = gather_bits(quants >> 4),
        }
    }
}

/// The scales of Q3_K, of which a block has sixteen of six bits, as signed numbers: 32 less.
#[inline(always)]
fn unpack_scales(packed: [u8; 12]) -> [u8; 16] {
    let mut scales = [0; 16];
    for (i, scale) in scales.iter_mut().enumerate() {
        let low = packed[i % 8] >> (i / 8 * 4) & 15;
        let above = packed[8 + i % 4] >> (i / 4 * 2) & 3;
        *scale = (low | above << 4).wrapping_sub(32);
    }
    scales
}

/// The inverse of [`unpack_scales`].
fn pack_scales(scales: [u8; 16]) -> [u8; 12] {
    let mut packed = [0; 12];
    for (i, scale) in scales.into_iter().enumerate() {
        let bits = scale.wrapping_add(32);
        packed[i % 8] |= (bits & 15) << (i / 8 * 4);
        packed[8 + i % 4] |= (bits >> 4 & 3) << (i / 4 * 2);
    }
    packed
}
