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
    /// 32 weights `d · q + m` with an f16 scale, an f16 minimum and 4-bit `q`.
    Q4_1,
    /// 32 weights `d · (q − 16)` with an f16 scale and 5-bit `q`.
    Q5_0,
    /// 32 weights `d · q + m` with an f16 scale, an f16 minimum and 5-bit `q`.
    Q5_1,
    /// 32 weights `d · v(q)` with an f16 scale and 4-bit `q`, the index of v(q) in ggml's table of 16 values.
    IQ4_NL,
    /// 256 weights `d · (sc − 32) · v(q)` with the values of [`IQ4_NL`](Self::IQ4_NL), and a 6-bit `sc` for each 32 of them.
    IQ4_XS,
    /// 32 weights `d · q`: OCP's microscaling format with elements of E2M1. A power of two `d` has 8 bits, `q` is one of
    /// ±{0, 1, 2, 3, 4, 6, 8, 12}, twice the element's value, and `d` is half of the block's E8M0 scale, as ggml has it.
    Mxfp4,
    /// 256 weights `d · sc · q − dmin · m` with 2-bit `q`, and 4-bit `sc` and `m` for each 16 of them.
    Q2_K,
    /// 256 weights `d · (sc − 32) · (q − 4)` with 3-bit `q`, and a 6-bit `sc` for each 16 of them.
    Q3_K,
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

/// How the quants of a format lie in their planes, and which numbers they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuantCode {
    /// Numbers from 0 to 3.
    Two,
    /// Numbers from 0 to 7, whose upper bits have a plane of their own.
    Three,
    /// Numbers from 0 to 15.
    Four,
    /// Numbers from 0 to 31, whose upper bits have a plane of their own.
    Five,
    /// Numbers from 0 to 63, whose upper two bits have a plane of their own.
    Six,
    /// Signed bytes.
    Eight,
    /// Four bits that are a number of E2M1, which stand for twice its value.
    E2m1,
    /// Four bits that are the place of a signed byte in ggml's table for IQ4_NL and IQ4_XS.
    Iq4,
}

/// What the scales of a format are, and what is subtracted beside them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScaleKind {
    /// An f16 scale for each block of 32.
    Block,
    /// An f16 scale and an f16 minimum, which is added, for each block of 32.
    BlockMin,
    /// A power of two for each block of 32.
    Exponent,
    /// For each 256 weights an f16 scale of scales and one of minima; 6-bit scales and minima for each 32.
    SuperBlock,
    /// For each 256 weights an f16 scale of scales; 6-bit scales, which are 32 too large, for each 32.
    SuperBlockSigned,
    /// For each 256 weights an f16 scale of scales; signed 8-bit scales for each 16.
    HalfBlock,
    /// For each 256 weights an f16 scale of scales and one of minima; 4-bit scales and minima for each 16.
    HalfBlockMin,
    /// An f16 scale for each group.
    Group,
}

impl ScaleKind {
    /// Whether weights have minima, so that their subtraction rounds.
    #[must_use]
    pub const fn has_min(self) -> bool {
        matches!(self, Self::BlockMin | Self::SuperBlock | Self::HalfBlockMin)
    }

    /// Whether the two halves of a block of 32 have scales of their own.
    #[must_use]
    pub const fn has_halves(self) -> bool {
        matches!(self, Self::HalfBlock | Self::HalfBlockMin)
    }
}

impl QuantFormat {
    /// The formats of GGUF.
    pub const GGUF: [Self; 13] = [
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::IQ4_NL,
        Self::IQ4_XS,
        Self::Mxfp4,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
    ];

    /// The name: `"q8_0"`, `"q4_0"`, …, `"iq4_nl"`, `"mxfp4"`, `"q4_k"`, `"u4"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4_1 => "q4_1",
            Self::Q5_0 => "q5_0",
            Self::Q5_1 => "q5_1",
            Self::IQ4_NL => "iq4_nl",
            Self::IQ4_XS => "iq4_xs",
            Self::Mxfp4 => "mxfp4",
            Self::Q2_K => "q2_k",
            Self::Q3_K => "q3_k",
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
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::IQ4_NL | Self::Mxfp4 => 32,
            Self::IQ4_XS | Self::Q2_K | Self::Q3_K | Self::Q4_K | Self::Q5_K | Self::Q6_K => 256,
            Self::U4 { group, .. } => group,
        }
    }

    /// Bytes of a block in a GGUF file; `None` for [`U4`](Self::U4), which GGUF doesn't have.
    #[must_use]
    pub const fn block_bytes(self) -> Option<usize> {
        match self {
            Self::Q8_0 => Some(34),
            Self::Q4_0 | Self::IQ4_NL => Some(18),
            Self::Q4_1 => Some(20),
            Self::Q5_0 => Some(22),
            Self::Q5_1 => Some(24),
            Self::IQ4_XS => Some(136),
            Self::Mxfp4 => Some(17),
            Self::Q2_K => Some(84),
            Self::Q3_K => Some(110),
            Self::Q4_K => Some(144),
            Self::Q5_K => Some(176),
            Self::Q6_K => Some(210),
            Self::U4 { .. } => None,
        }
    }

    /// What its quants are.
    #[must_use]
    pub const fn code(self) -> QuantCode {
        match self {
            Self::Q2_K => QuantCode::Two,
            Self::Q3_K => QuantCode::Three,
            Self::Q4_0 | Self::Q4_1 | Self::Q4_K | Self::U4 { .. } => QuantCode::Four,
            Self::Q5_0 | Self::Q5_1 | Self::Q5_K => QuantCode::Five,
            Self::Q6_K => QuantCode::Six,
            Self::Q8_0 => QuantCode::Eight,
            Self::Mxfp4 => QuantCode::E2m1,
            Self::IQ4_NL | Self::IQ4_XS => QuantCode::Iq4,
        }
    }

    /// What its scales are.
    #[must_use]
    pub const fn scale_kind(self) -> ScaleKind {
        match self {
            Self::Q8_0 | Self::Q4_0 | Self::Q5_0 | Self::IQ4_NL => ScaleKind::Block,
            Self::Q4_1 | Self::Q5_1 => ScaleKind::BlockMin,
            Self::IQ4_XS => ScaleKind::SuperBlockSigned,
            Self::Mxfp4 => ScaleKind::Exponent,
            Self::Q2_K => ScaleKind::HalfBlockMin,
            Self::Q3_K | Self::Q6_K => ScaleKind::HalfBlock,
            Self::Q4_K | Self::Q5_K => ScaleKind::SuperBlock,
            Self::U4 { .. } => ScaleKind::Group,
        }
    }

    /// The zero point of all of its quants, 0 where none is subtracted; `None` for [`U4`](Self::U4) with those of groups.
    #[must_use]
    pub const fn zero_point(self) -> Option<i8> {
        match self {
            Self::Q3_K => Some(4),
            Self::Q4_0 | Self::U4 { zero_points: false, .. } => Some(8),
            Self::Q5_0 => Some(16),
            Self::Q6_K => Some(32),
            Self::U4 { zero_points: true, .. } => None,
            _ => Some(0),
        }
    }

    /// Whether [`MathMode::Int8`](crate::MathMode::Int8) may round the activations that its weights are multiplied
    /// by: zero points and minima have to be those of whole blocks of 32 or of all weights, so all formats but
    /// [`Q2_K`](Self::Q2_K) and [`U4`](Self::U4) with a group of 16.
    #[must_use]
    pub const fn takes_int8(self) -> bool {
        match self {
            Self::Q2_K => false,
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
///
/// With `otherwise`, that is done for the formats that most weights have: where it is inlined into callers, each copy of
/// it takes long to compile.
macro_rules! by_format {
    ($format:expr, $known:ident => $expression:expr) => {
        by_format!(@of $format, $known, $expression,
            [Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, IQ4_XS, Mxfp4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K], [])
    };
    ($format:expr, $known:ident => $expression:expr, otherwise $otherwise:expr) => {
        by_format!(@of $format, $known, $expression, [Q8_0, Q4_0, Mxfp4, Q4_K, Q5_K, Q6_K],
            [(Q4_1, Q5_0, Q5_1, IQ4_NL, IQ4_XS, Q2_K, Q3_K) => $otherwise])
    };
    (@of $format:expr, $known:ident, $expression:expr, [$($name:ident),*],
        [$(($($other:ident),*) => $otherwise:expr)?]) => {
        match $format {
            $(QuantFormat::$name => {
                let $known = QuantFormat::$name;
                $expression
            })*
            $($(QuantFormat::$other)|* => $otherwise,)?
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
