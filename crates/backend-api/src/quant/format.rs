//! Block formats of quantised weights.

use std::fmt;

use super::QuantLayout;
use crate::BackendResult;

/// How the weights of a [`QuantMatrix`](crate::desc::QuantMatrix) are quantised.
///
/// The names are those of GGUF; `q`, `d`, `sc` and `m` are the integers and scales stored in a block. The
/// bit layout in device memory is described in [`quant`](crate::quant).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(non_camel_case_types, reason = "the formats' own names")]
pub enum QuantFormat {
    /// 32 weights `d · q` with an f16 scale and signed 8-bit `q`.
    Q8_0,
    /// 32 weights `d · (q − 8)` with an f16 scale and 4-bit `q`.
    Q4_0,
    /// 32 weights `d · q`: OCP's microscaling format with elements of E2M1. A power of two `d` has 8 bits, `q` is one of
    /// ±{0, 1, 2, 3, 4, 6, 8, 12}, twice the element's value, and `d` is half of the block's E8M0 scale, as ggml has it.
    Mxfp4,
    /// 256 weights `d · sc · q − dmin · m` with 4-bit `q`, and 6-bit `sc` and `m` for each 32 of them.
    Q4_K,
    /// 256 weights `d · sc · q − dmin · m` with 5-bit `q`, and 6-bit `sc` and `m` for each 32 of them.
    Q5_K,
    /// 256 weights `d · sc · (q − 32)` with 6-bit `q`, and a signed 8-bit `sc` for each 16 of them.
    Q6_K,
    /// Groups of weights `s · (q − z)` with 4-bit `q` and an f16 scale: MatMulNBits of ONNX Runtime, GPTQ, AWQ.
    U4 {
        /// Consecutive weights of a row that share a scale: a power of two, at least 16. The last group of a
        /// row may be shorter.
        group: usize,
        /// Whether each group has an 8-bit zero point z; without, z is 8.
        zero_points: bool,
    },
}

impl QuantFormat {
    /// The formats of GGUF.
    pub const GGUF: [Self; 6] = [Self::Q8_0, Self::Q4_0, Self::Mxfp4, Self::Q4_K, Self::Q5_K, Self::Q6_K];

    /// The name: `"q8_0"`, `"q4_0"`, `"mxfp4"`, `"q4_k"`, `"q5_k"`, `"q6_k"`, `"u4"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Mxfp4 => "mxfp4",
            Self::Q4_K => "q4_k",
            Self::Q5_K => "q5_k",
            Self::Q6_K => "q6_k",
            Self::U4 { .. } => "u4",
        }
    }

    /// Weights in a block, of which a row has a whole number; the group of [`U4`](Self::U4), whose rows may
    /// have any length.
    #[must_use]
    pub const fn block_elements(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q4_0 | Self::Mxfp4 => 32,
            Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
            Self::U4 { group, .. } => group,
        }
    }

    /// Bytes of a block in a GGUF file; `None` for [`U4`](Self::U4), which GGUF doesn't have.
    #[must_use]
    pub const fn block_bytes(self) -> Option<usize> {
        match self {
            Self::Q8_0 => Some(34),
            Self::Q4_0 => Some(18),
            Self::Mxfp4 => Some(17),
            Self::Q4_K => Some(144),
            Self::Q5_K => Some(176),
            Self::Q6_K => Some(210),
            Self::U4 { .. } => None,
        }
    }

    /// The zero point of all of its quants, 0 where none is subtracted; `None` for [`U4`](Self::U4) with those of groups.
    #[must_use]
    pub const fn zero_point(self) -> Option<i8> {
        match self {
            Self::Q4_0 | Self::U4 { zero_points: false, .. } => Some(8),
            Self::Q6_K => Some(32),
            Self::Q8_0 | Self::Mxfp4 | Self::Q4_K | Self::Q5_K => Some(0),
            Self::U4 { zero_points: true, .. } => None,
        }
    }

    /// Whether [`MathMode::Int8`](crate::MathMode::Int8) may round the activations that its weights are multiplied
    /// by: zero points and minima have to be those of whole blocks of 32, so all formats but [`U4`](Self::U4) with a
    /// group of 16.
    #[must_use]
    pub const fn takes_int8(self) -> bool {
        match self {
            Self::U4 { group, .. } => group >= 32,
            _ => true,
        }
    }

    /// Bytes of device memory that a matrix of `rows` rows of `columns` weights takes.
    ///
    /// # Errors
    /// [`Shape`](crate::BackendError::Shape) if `columns` is no multiple of the block, or the group no power
    /// of two from 16 on; [`Overflow`](crate::BackendError::Overflow).
    pub fn bytes(self, rows: usize, columns: usize) -> BackendResult<usize> {
        QuantLayout::new("bytes", self, rows, columns).map(|layout| layout.bytes)
    }
}

/// An expression with a format that the compiler knows: it is compiled for each by itself, so that the loops of functions that are
/// inlined into it know all places, shifts and masks.
macro_rules! by_format {
    ($format:expr, $known:ident => $expression:expr) => {
        by_format!(@of $format, $known, $expression, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K, Mxfp4)
    };
    (@of $format:expr, $known:ident, $expression:expr, $($name:ident),*) => {
        match $format {
            $(QuantFormat::$name => {
                let $known = QuantFormat::$name;
                $expression
            })*
            $known @ QuantFormat::U4 { .. } => $expression,
        }
    };
}
pub(super) use by_format;

impl fmt::Display for QuantFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U4 { group, zero_points: true } => write!(f, "u4 in groups of {group} with zero points"),
            Self::U4 { group, zero_points: false } => write!(f, "u4 in groups of {group}"),
            other => f.write_str(other.name()),
        }
    }
}
