//! Tensors on the host, where shapes, indices and truth values are computed.

use half::f16;

use crate::error::{Error, Result};
use crate::kind::Kind;

/// Elements in row-major order. Every kind is exact: integers as i64, floating-point numbers as f64.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Numbers {
    /// Integers, and truth values as 0 and 1.
    Int(Vec<i64>),
    /// Floating-point numbers.
    Float(Vec<f64>),
}

impl Numbers {
    /// Whether both are the same to the bit: −0 is another number than 0, and NaN is as itself.
    pub(crate) fn has_bits_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
            }
            _ => false,
        }
    }

    /// Reads the bytes of an ONNX Runtime tensor.
    pub(crate) fn decode(kind: Kind, bytes: &[u8]) -> Self {
        let words = || bytes.as_chunks::<4>().0.iter();
        match kind {
            Kind::F32 => Self::Float(words().map(|&word| f64::from(f32::from_le_bytes(word))).collect()),
            Kind::F16 => {
                let halves = bytes.as_chunks::<2>().0.iter();
                Self::Float(halves.map(|&half| f16::from_le_bytes(half).to_f64()).collect())
            }
            Kind::I32 => Self::Int(words().map(|&word| i64::from(i32::from_le_bytes(word))).collect()),
            Kind::U32 => Self::Int(words().map(|&word| i64::from(u32::from_le_bytes(word))).collect()),
            Kind::I64 => {
                Self::Int(bytes.as_chunks::<8>().0.iter().map(|&word| i64::from_le_bytes(word)).collect())
            }
            Kind::Bool => Self::Int(bytes.iter().map(|&byte| i64::from(byte != 0)).collect()),
            Kind::I8 => Self::Int(bytes.iter().map(|&byte| i64::from(byte.cast_signed())).collect()),
            Kind::Raw => Self::Int(bytes.iter().map(|&byte| i64::from(byte)).collect()),
        }
    }

    /// Reads the bytes of device memory.
    pub(crate) fn decode_device(kind: Kind, bytes: &[u8]) -> Self {
        match kind {
            Kind::I64 | Kind::I8 => Self::decode(Kind::I32, bytes),
            Kind::Bool | Kind::Raw => Self::decode(Kind::U32, bytes),
            _ => Self::decode(kind, bytes),
        }
    }

    /// The bytes of an ONNX Runtime tensor. Integers wrap around, truth values become 0 or 1.
    pub(crate) fn encode(&self, kind: Kind) -> Vec<u8> {
        match self {
            Self::Int(numbers) => match kind {
                Kind::I64 => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
                Kind::Bool => numbers.iter().map(|&x| u8::from(x != 0)).collect(),
                Kind::I8 | Kind::Raw => numbers.iter().map(|&x| x as u8).collect(),
                Kind::F16 => numbers.iter().flat_map(|&x| f16::from_f64(x as f64).to_le_bytes()).collect(),
                Kind::F32 => numbers.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect(),
                Kind::I32 | Kind::U32 => numbers.iter().flat_map(|&x| (x as i32).to_le_bytes()).collect(),
            },
            Self::Float(numbers) => match kind {
                Kind::F32 => numbers.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect(),
                Kind::F16 => numbers.iter().flat_map(|&x| f16::from_f64(x).to_le_bytes()).collect(),
                _ => Self::Int(numbers.iter().map(|&x| x as i64).collect()).encode(kind),
            },
        }
    }

    /// The bytes of device memory.
    pub(crate) fn encode_device(&self, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::I64 | Kind::Bool | Kind::I8 | Kind::Raw => self.encode(Kind::I32),
            _ => self.encode(kind),
        }
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        match self {
            Self::Int(numbers) => numbers.len(),
            Self::Float(numbers) => numbers.len(),
        }
    }

    /// The numbers as integers, fractions dropped.
    pub(crate) fn ints(&self) -> Vec<i64> {
        match self {
            Self::Int(numbers) => numbers.clone(),
            Self::Float(numbers) => numbers.iter().map(|&x| x as i64).collect(),
        }
    }

    /// The numbers as f64; integers beyond 2⁵³ are rounded.
    pub(crate) fn floats(&self) -> Vec<f64> {
        match self {
            Self::Int(numbers) => numbers.iter().map(|&x| x as f64).collect(),
            Self::Float(numbers) => numbers.clone(),
        }
    }

    /// The numbers at `places`, in that order.
    pub(crate) fn pick(&self, places: impl Iterator<Item = usize>) -> Result<Self> {
        fn at<T: Copy>(numbers: &[T], places: impl Iterator<Item = usize>) -> Result<Vec<T>> {
            let number = |place| numbers.get(place).copied();
            places
                .map(|place| {
                    number(place).ok_or_else(|| Error::invalid(format!("index {place} is too large")))
                })
                .collect()
        }
        Ok(match self {
            Self::Int(numbers) => Self::Int(at(numbers, places)?),
            Self::Float(numbers) => Self::Float(at(numbers, places)?),
        })
    }

    /// Puts numbers of the same sort behind these.
    pub(crate) fn extend(&mut self, more: &Self) {
        match self {
            Self::Int(numbers) => numbers.extend(more.ints()),
            Self::Float(numbers) => numbers.extend(more.floats()),
        }
    }

    /// The numbers as `kind` stores them: rounded, or as truth values. Integers beyond its range wrap around;
    /// floating-point numbers become the nearest integer of 32 bits, and NaN 0, as on the device.
    pub(crate) fn convert(self, to: Kind) -> Self {
        match (self, to) {
            (Self::Float(numbers), Kind::F32) => Self::floats_of(numbers, |x| f64::from(x as f32)),
            (Self::Float(numbers), Kind::F16) => Self::floats_of(numbers, |x| f16::from_f64(x).to_f64()),
            (Self::Float(numbers), Kind::Bool) => Self::ints_of(numbers, |x| i64::from(x != 0.0)),
            (Self::Float(numbers), Kind::I32) => Self::ints_of(numbers, |x| i64::from(x as i32)),
            (Self::Float(numbers), Kind::U32) => Self::ints_of(numbers, |x| i64::from(x as u32)),
            (Self::Float(numbers), Kind::I64 | Kind::I8 | Kind::Raw) => {
                Self::ints_of(numbers, |x| x as i64).convert(to)
            }
            // By f64, an integer beyond 2⁵³ would be rounded twice.
            (Self::Int(numbers), Kind::F32) => Self::floats_of(numbers, |x| f64::from(x as f32)),
            (Self::Int(numbers), Kind::F16) => Self::floats_of(numbers, |x| x as f64).convert(to),
            (Self::Int(numbers), Kind::I32) => Self::ints_of(numbers, |x| i64::from(x as i32)),
            (Self::Int(numbers), Kind::U32) => Self::ints_of(numbers, |x| i64::from(x as u32)),
            (Self::Int(numbers), Kind::Bool) => Self::ints_of(numbers, |x| i64::from(x != 0)),
            (Self::Int(numbers), Kind::I8) => Self::ints_of(numbers, |x| i64::from(x as i8)),
            (Self::Int(numbers), Kind::Raw) => Self::ints_of(numbers, |x| i64::from(x as u8)),
            (Self::Int(numbers), Kind::I64) => Self::Int(numbers),
        }
    }

    fn ints_of<T>(numbers: Vec<T>, of: impl Fn(T) -> i64) -> Self {
        Self::Int(numbers.into_iter().map(of).collect())
    }

    fn floats_of<T>(numbers: Vec<T>, of: impl Fn(T) -> f64) -> Self {
        Self::Float(numbers.into_iter().map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_a_round_trip() {
        for (kind, numbers) in [
            (Kind::F32, Numbers::Float(vec![1.5, -0.0, f64::INFINITY])),
            (Kind::F16, Numbers::Float(vec![1.5, -2.0])),
            (Kind::I32, Numbers::Int(vec![-1, i64::from(i32::MIN)])),
            (Kind::U32, Numbers::Int(vec![1, i64::from(u32::MAX)])),
            (Kind::I64, Numbers::Int(vec![i64::MIN, i64::MAX])),
            (Kind::Bool, Numbers::Int(vec![0, 1])),
            (Kind::I8, Numbers::Int(vec![-128, 127])),
            (Kind::Raw, Numbers::Int(vec![0, 255])),
        ] {
            assert_eq!(Numbers::decode(kind, &numbers.encode(kind)), numbers, "{kind:?}");
        }
        let small = Numbers::Int(vec![0, 1]);
        assert_eq!(Numbers::decode_device(Kind::Bool, &small.encode_device(Kind::Bool)), small);
        assert_eq!(Numbers::decode_device(Kind::I64, &small.encode_device(Kind::I64)), small);
    }

    #[test]
    fn a_conversion_rounds_as_the_kind_stores() {
        let third = Numbers::Float(vec![1.0 / 3.0]);
        assert_eq!(third.clone().convert(Kind::F32), Numbers::Float(vec![f64::from(1.0f32 / 3.0)]));
        assert_eq!(third.convert(Kind::Bool), Numbers::Int(vec![1]));
        assert_eq!(Numbers::Int(vec![1 << 32]).convert(Kind::I32), Numbers::Int(vec![0]));
        let large = Numbers::Float(vec![1e10, -1e10, -1.5, f64::NAN]);
        let nearest = |least: i64, most: i64| Numbers::Int(vec![most, least, (-1).max(least), 0]);
        assert_eq!(large.clone().convert(Kind::I32), nearest(i32::MIN.into(), i32::MAX.into()));
        assert_eq!(large.convert(Kind::U32), nearest(0, u32::MAX.into()));
        // Just beyond the middle between two numbers of f32.
        let beyond = (1i64 << 62) + (1 << 38) + 1;
        let above = ((1i64 << 62) + (1 << 39)) as f64;
        assert_eq!(Numbers::Int(vec![beyond]).convert(Kind::F32), Numbers::Float(vec![above]));
    }
}
