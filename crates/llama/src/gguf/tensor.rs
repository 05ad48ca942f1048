//! Tensors: element type, shape, bytes.

use std::fmt;
use std::ops::Range;

use backend_api::quant::QuantFormat;

use super::cursor::{Cursor, GgufError, GgufErrorKind};

/// ggml's limit.
const MAX_DIMENSIONS: u32 = 4;

/// How the numbers of a tensor are stored, by ggml's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorType {
    /// f32.
    F32,
    /// f16.
    F16,
    /// The upper half of an f32.
    Bf16,
    /// Blocks of 32: f16 scale, i8 quants.
    Q8_0,
    /// Blocks of 32: f16 scale, four-bit quants.
    Q4_0,
    /// Blocks of 32: f16 scale and minimum, four-bit quants.
    Q4_1,
    /// Blocks of 32: f16 scale, five-bit quants.
    Q5_0,
    /// Blocks of 32: f16 scale and minimum, five-bit quants.
    Q5_1,
    /// Blocks of 32: f16 scale, four-bit places in a table of values.
    Iq4Nl,
    /// Blocks of 256 of four-bit places in a table of values, with scales of 32.
    Iq4Xs,
    /// Blocks of 32: a power of two in eight bits, four-bit numbers of E2M1.
    Mxfp4,
    /// Blocks of 256 of two-bit quants with scales and minima of 16.
    Q2K,
    /// Blocks of 256 of three-bit quants with scales of 16.
    Q3K,
    /// Blocks of 256 of four-bit quants with scales and minima of 32.
    Q4K,
    /// Blocks of 256 of five-bit quants with scales and minima of 32.
    Q5K,
    /// Blocks of 256 of six-bit quants with scales of 16.
    Q6K,
    /// A type that this runtime doesn't read, by ggml's number.
    Other(u32),
}

impl TensorType {
    /// The type of ggml's number.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            10 => Self::Q2K,
            11 => Self::Q3K,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            20 => Self::Iq4Nl,
            23 => Self::Iq4Xs,
            30 => Self::Bf16,
            39 => Self::Mxfp4,
            other => Self::Other(other),
        }
    }

    /// The format of quantised blocks; `None` for plain numbers and for a type that isn't read.
    #[must_use]
    pub const fn quant_format(self) -> Option<QuantFormat> {
        match self {
            Self::Q8_0 => Some(QuantFormat::Q8_0),
            Self::Q4_0 => Some(QuantFormat::Q4_0),
            Self::Q4_1 => Some(QuantFormat::Q4_1),
            Self::Q5_0 => Some(QuantFormat::Q5_0),
            Self::Q5_1 => Some(QuantFormat::Q5_1),
            Self::Iq4Nl => Some(QuantFormat::IQ4_NL),
            Self::Iq4Xs => Some(QuantFormat::IQ4_XS),
            Self::Mxfp4 => Some(QuantFormat::Mxfp4),
            Self::Q2K => Some(QuantFormat::Q2_K),
            Self::Q3K => Some(QuantFormat::Q3_K),
            Self::Q4K => Some(QuantFormat::Q4_K),
            Self::Q5K => Some(QuantFormat::Q5_K),
            Self::Q6K => Some(QuantFormat::Q6_K),
            Self::F32 | Self::F16 | Self::Bf16 | Self::Other(_) => None,
        }
    }

    /// Numbers in a block, and its bytes; `None` for a type that isn't read.
    #[must_use]
    pub const fn block(self) -> Option<(usize, usize)> {
        match self {
            Self::F32 => Some((1, 4)),
            Self::F16 | Self::Bf16 => Some((1, 2)),
            _ => match self.quant_format() {
                Some(format) => match format.block_bytes() {
                    Some(bytes) => Some((format.block_elements(), bytes)),
                    None => None,
                },
                None => None,
            },
        }
    }
}

/// ggml's name, also of types that aren't read.
impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::Bf16 => "BF16",
            Self::Other(9) => "Q8_1",
            Self::Other(15) => "Q8_K",
            Self::Other(16) => "IQ2_XXS",
            Self::Other(17) => "IQ2_XS",
            Self::Other(18) => "IQ3_XXS",
            Self::Other(19) => "IQ1_S",
            Self::Other(21) => "IQ3_S",
            Self::Other(22) => "IQ2_S",
            Self::Other(24..=27) => "of integers",
            Self::Other(28) => "F64",
            Self::Other(29) => "IQ1_M",
            Self::Other(34) => "TQ1_0",
            Self::Other(35) => "TQ2_0",
            Self::Other(number) => return write!(f, "of ggml's type {number}"),
            quantised => {
                return f.write_str(&quantised.quant_format().map_or("", QuantFormat::name).to_uppercase());
            }
        };
        f.write_str(name)
    }
}

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct Tensor<'a> {
    /// How its numbers are stored.
    pub kind: TensorType,
    /// Extents, outermost first: rows, then numbers in a row. GGUF has them the other way round.
    pub shape: Vec<usize>,
    /// Its bytes; none of a type that isn't read.
    pub data: &'a [u8],
}

/// Where tensors lie, with the places of their headers in the file.
#[derive(Debug, Default)]
pub(super) struct Places(Vec<(Range<u64>, usize, String)>);

impl Places {
    pub(super) fn add(&mut self, header: &Header, range: Range<u64>) {
        if !range.is_empty() {
            self.0.push((range, header.at, header.name.clone()));
        }
    }

    /// Refuses a tensor that begins within another one: such a file would take more memory than it is long.
    pub(super) fn check(mut self) -> Result<(), GgufError> {
        self.0.sort_unstable_by_key(|(range, ..)| range.start);
        let mut end = 0;
        for (range, offset, name) in self.0 {
            if range.start < end {
                return Err(GgufError { offset, kind: GgufErrorKind::Overlap(name) });
            }
            end = range.end;
        }
        Ok(())
    }
}

/// What the header says of a tensor.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) at: usize,
    pub(super) name: String,
    pub(super) kind: TensorType,
    pub(super) shape: Vec<usize>,
    offset: u64,
}

impl Header {
    pub(super) fn parse(cursor: &mut Cursor<'_>) -> Result<Self, GgufError> {
        let at = cursor.offset();
        let name = cursor.text()?;
        let dimensions = cursor.u32()?;
        if dimensions > MAX_DIMENSIONS {
            return Err(cursor.error(GgufErrorKind::Shape(vec![dimensions.into()])));
        }
        let mut extents = (0..dimensions).map(|_| cursor.u64()).collect::<Result<Vec<_>, _>>()?;
        extents.reverse();
        let sizes = extents.iter().map(|&extent| usize::try_from(extent)).collect::<Result<Vec<_>, _>>();
        let product = |shape: &[usize]| shape.iter().try_fold(1usize, |product, &x| product.checked_mul(x));
        let Some(shape) = sizes.ok().filter(|shape| product(shape).is_some()) else {
            return Err(GgufError { offset: at, kind: GgufErrorKind::Shape(extents) });
        };
        let kind = TensorType::from_number(cursor.u32()?);
        Ok(Self { at, name, kind, shape, offset: cursor.u64()? })
    }

    /// With its part of `file`.
    pub(super) fn tensor<'a>(self, file: &'a [u8], range: &Range<u64>) -> Tensor<'a> {
        let Self { kind, shape, .. } = self;
        // The ends lie within the slice.
        let data = file.get(range.start as usize..range.end as usize).unwrap_or_default();
        Tensor { kind, shape, data }
    }

    /// Where its bytes lie in a file of `size` bytes whose tensors begin at byte `start`; nowhere, if its type isn't
    /// read.
    pub(super) fn range(&self, start: u64, size: u64) -> Result<Range<u64>, GgufError> {
        let error = |kind| GgufError { offset: self.at, kind };
        let Some((block, bytes)) = self.kind.block() else { return Ok(0..0) };
        let columns = self.shape.last().copied().unwrap_or(1);
        if !columns.is_multiple_of(block) {
            return Err(error(GgufErrorKind::Blocks { columns, block }));
        }
        // The product was checked with the header.
        let blocks = self.shape.iter().product::<usize>() / block;
        let len = (blocks as u64).saturating_mul(bytes as u64);
        let begin = start.saturating_add(self.offset);
        let end = begin.saturating_add(len);
        if end > size {
            return Err(error(GgufErrorKind::TensorEnd { name: self.name.clone(), end, size }));
        }
        Ok(begin..end)
    }
}
