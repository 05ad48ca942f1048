//! How keys and values of attention are stored, and blocks of Q8_0 on the host.

use std::fmt;

use half::f16;

use crate::desc::{require_eq, require_multiple};
use crate::{BackendResult, DType, checked_product};

/// How the elements of keys and values are stored.
///
/// # Q8_0
/// Each 32 neighbouring elements are a block of 36 bytes, nine u32 in little-endian order: the f16 scale d of ggml's
/// Q8_0, two bytes of 0, and 32 quants q of i8. An element is `d · q`, which f32 has room for. Offsets, strides and
/// lengths of vectors are still in elements, and multiples of 32, so element e lies in block e / 32. Memory starts at a
/// multiple of 4 bytes.
///
/// A block is quantised as ggml's `quantize_row_q8_0_ref` does it: `d = max |x| / 127`, rounded to f16 where it is
/// stored, and `q = x · (1 / d)` of the d before that, rounded half away from zero; all 0 where d is 0 as f16. So an element
/// is off by at most d / 2 of its rounding and `|x| · 2⁻¹¹` of that of d, or by
/// 2⁻²⁵ · |q| where d is below 2⁻¹⁴. Blocks are equal to the bit on every backend.
/// A block with an element that isn't finite, or whose magnitude is above [`KvFormat::LARGEST`], becomes NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KvFormat {
    /// Elements of a floating-point type.
    Float(DType),
    /// Blocks of 32 quants of 8 bits.
    Q8_0,
}

impl KvFormat {
    /// Elements of a block of Q8_0.
    pub const BLOCK: usize = 32;
    /// Bytes of a block of Q8_0.
    pub const BLOCK_BYTES: usize = 36;
    /// The largest magnitude that a block of Q8_0 has: 127 times the largest f16.
    pub const LARGEST: f32 = 127.0 * 65504.0;

    /// Bytes of so many elements.
    ///
    /// # Errors
    /// [`Shape`](crate::BackendError::Shape) if they aren't whole blocks; [`Overflow`](crate::BackendError::Overflow).
    pub fn bytes(self, op: &'static str, elements: usize) -> BackendResult<usize> {
        match self {
            Self::Float(dtype) => checked_product(op, "keys and values", &[elements, dtype.size()]),
            Self::Q8_0 => {
                require_multiple(op, "number of elements", Self::BLOCK, elements)?;
                checked_product(op, "keys and values", &[elements / Self::BLOCK, Self::BLOCK_BYTES])
            }
        }
    }

    /// Bytes to a multiple of which memory is aligned.
    pub(crate) const fn align(self) -> usize {
        match self {
            Self::Float(dtype) => dtype.size(),
            Self::Q8_0 => 4,
        }
    }

    /// The type of the elements, if they are numbers of their own.
    #[must_use]
    pub const fn dtype(self) -> Option<DType> {
        match self {
            Self::Float(dtype) => Some(dtype),
            Self::Q8_0 => None,
        }
    }
}

/// The type, or `q8_0`.
impl fmt::Display for KvFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(dtype) => dtype.fmt(f),
            Self::Q8_0 => f.write_str("q8_0"),
        }
    }
}

impl From<DType> for KvFormat {
    fn from(dtype: DType) -> Self {
        Self::Float(dtype)
    }
}

/// Quantises numbers to blocks of [`Q8_0`](KvFormat::Q8_0).
///
/// # Errors
/// [`Shape`](crate::BackendError::Shape) if there aren't whole blocks, or `blocks` hasn't exactly their bytes;
/// [`Overflow`](crate::BackendError::Overflow).
pub fn quantize_q8_0(numbers: &[f32], blocks: &mut [u8]) -> BackendResult<()> {
    let bytes = KvFormat::Q8_0.bytes(OP, numbers.len())?;
    require_eq(OP, "bytes of the blocks", bytes, blocks.len())?;
    let (numbers, _) = numbers.as_chunks::<{ KvFormat::BLOCK }>();
    let (blocks, _) = blocks.as_chunks_mut::<{ KvFormat::BLOCK_BYTES }>();
    numbers.iter().zip(blocks).for_each(|(numbers, block)| *block = block_of(numbers));
    Ok(())
}

/// The numbers of blocks of [`Q8_0`](KvFormat::Q8_0).
///
/// # Errors
/// [`Shape`](crate::BackendError::Shape) if `blocks` hasn't exactly the bytes of the numbers' blocks;
/// [`Overflow`](crate::BackendError::Overflow).
pub fn dequantize_q8_0(blocks: &[u8], numbers: &mut [f32]) -> BackendResult<()> {
    let bytes = KvFormat::Q8_0.bytes(OP, numbers.len())?;
    require_eq(OP, "bytes of the blocks", bytes, blocks.len())?;
    let (numbers, _) = numbers.as_chunks_mut::<{ KvFormat::BLOCK }>();
    let (blocks, _) = blocks.as_chunks::<{ KvFormat::BLOCK_BYTES }>();
    for (numbers, block) in numbers.iter_mut().zip(blocks) {
        let d = f16::from_le_bytes([block[0], block[1]]).to_f32();
        numbers.iter_mut().zip(&block[4..]).for_each(|(number, &quant)| *number = d * f32::from(quant as i8));
    }
    Ok(())
}

const OP: &str = "q8_0";

fn block_of(numbers: &[f32; KvFormat::BLOCK]) -> [u8; KvFormat::BLOCK_BYTES] {
    let mut block = [0; KvFormat::BLOCK_BYTES];
    let (scale, quants) = block.split_at_mut(4);
    let fits = numbers.iter().all(|x| x.abs() <= KvFormat::LARGEST);
    if !fits {
        scale[..2].copy_from_slice(&f16::NAN.to_le_bytes());
        return block;
    }
    let d = numbers.iter().fold(0.0f32, |largest, x| largest.max(x.abs())) / 127.0;
    let stored = f16::from_f32(d);
    if stored == f16::ZERO {
        return block;
    }
    scale[..2].copy_from_slice(&stored.to_le_bytes());
    for (quant, x) in quants.iter_mut().zip(numbers) {
        // Half away from zero.
        *quant = (x * d.recip()).round() as i8 as u8;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quant::{QuantFormat, quantize};

    #[test]
    fn a_block_is_that_of_gguf() {
        let numbers: Vec<f32> =
            (0..320).map(|i| ((i * 7919 % 1009) as f32 / 131.0 - 3.7) * (1 << (i / 32)) as f32).collect();
        let mut blocks = vec![0; 360];
        quantize_q8_0(&numbers, &mut blocks).unwrap();
        let mut gguf = vec![0; 340];
        quantize(QuantFormat::Q8_0, 10, 32, &numbers, &mut gguf).unwrap();
        for (block, gguf) in blocks.chunks(36).zip(gguf.chunks(34)) {
            assert_eq!((&block[..2], &block[2..4], &block[4..]), (&gguf[..2], &[0; 2][..], &gguf[2..]));
        }
        let mut back = vec![0.0; 320];
        dequantize_q8_0(&blocks, &mut back).unwrap();
        for (numbers, back) in numbers.chunks(32).zip(back.chunks(32)) {
            let largest = numbers.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
            let bound = largest * (0.5 / 127.0 + 2f32.powi(-11)) * 1.001;
            assert!(numbers.iter().zip(back).all(|(x, y)| (x - y).abs() <= bound));
        }
    }

    #[test]
    fn what_does_not_fit_is_nan() {
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 8.4e6] {
            let mut numbers = [1.0; 64];
            numbers[40] = x;
            let mut blocks = [0; 72];
            quantize_q8_0(&numbers, &mut blocks).unwrap();
            dequantize_q8_0(&blocks, &mut numbers).unwrap();
            assert!(numbers[..32].iter().all(|&x| (x - 1.0).abs() < 1e-3), "{x}");
            assert!(numbers[32..].iter().all(|x| x.is_nan()), "{x}");
        }
        assert!(quantize_q8_0(&[0.0; 33], &mut [0; 72]).is_err());
        assert!(quantize_q8_0(&[0.0; 32], &mut [0; 35]).is_err());
    }
}
