//! The element types that device memory holds.

use std::fmt;

use half::f16;

/// The type of a tensor's elements as stored in device memory, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary16. Storage only: operations accumulate in f32.
    F16,
    /// Two's complement 32-bit integer.
    I32,
    /// Unsigned 32-bit integer.
    U32,
}

impl DType {
    /// Every element type.
    pub const ALL: [Self; 4] = [Self::F32, Self::F16, Self::I32, Self::U32];

    /// Bytes of one element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
        }
    }

    /// Whether it is a floating-point type.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16)
    }

    /// The lower-case name: `"f32"`, `"f16"`, `"i32"`, `"u32"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::I32 => "i32",
            Self::U32 => "u32",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The numbers that bytes hold as elements of a type, all of which an f64 has. A part of an element at the end is left out.
pub fn numbers(dtype: DType, bytes: &[u8]) -> impl Iterator<Item = f64> + '_ {
    bytes.chunks_exact(dtype.size()).map(move |element| {
        let mut word = [0; 4];
        word[..element.len()].copy_from_slice(element);
        match dtype {
            DType::F16 => f16::from_le_bytes([word[0], word[1]]).to_f64(),
            DType::F32 => f32::from_le_bytes(word).into(),
            DType::I32 => i32::from_le_bytes(word).into(),
            DType::U32 => u32::from_le_bytes(word).into(),
        }
    })
}

/// `x` as an f32 that can be rounded a second time, to f16, as if only once: towards zero, with the last bit
/// set if anything was lost. That bit is far below f16's last, so the second rounding sees on which side of a
/// half `x` was.
///
/// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
/// odd", 2008.)
#[must_use]
pub fn round_to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    if back == x || x.is_nan() {
        return near;
    }
    let towards_zero = near.to_bits() - u32::from(back.abs() > x.abs());
    f32::from_bits(towards_zero | 1)
}
