//! An element as far as it is known.

use backend_api::DType;
use half::f16;

/// The bits of an element, and which of them are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) bits: u32,
    pub(super) known: u32,
}

/// The largest number up to which f32 holds every integer.
pub(super) const EXACT: i64 = 1 << 24;

/// The largest number up to which f16 holds every integer.
const EXACT_F16: i64 = 1 << 11;

const SIGN: u32 = 1 << 31;
const SIGN_F16: u32 = 1 << 15;

impl Element {
    /// Nothing is known.
    pub(super) const UNKNOWN: Self = Self { bits: 0, known: 0 };

    /// A number that an operation gave, unknown if it may have been rounded. The sign of a zero is unknown.
    pub(super) fn of(dtype: DType, number: Option<i64>) -> Self {
        let Some(number) = number else { return Self::UNKNOWN };
        match dtype {
            DType::F32 if number == 0 => Self { bits: 0, known: !SIGN },
            DType::F32 if number.abs() <= EXACT => Self { bits: (number as f32).to_bits(), known: !0 },
            DType::F16 if number == 0 => Self { bits: 0, known: 0xffff & !SIGN_F16 },
            DType::F16 if number.abs() <= EXACT_F16 => {
                Self { bits: u32::from(f16::from_f32(number as f32).to_bits()), known: 0xffff }
            }
            DType::I32 | DType::U32 => Self { bits: number as u32, known: !0 },
            _ => Self::UNKNOWN,
        }
    }

    /// The integer that it holds, if it is known and an integer that every sum of a few keeps exact.
    pub(super) fn number(self, dtype: DType) -> Option<i64> {
        let whole = |x: f64| (x.fract() == 0.0 && x.abs() <= EXACT as f64).then_some(x as i64);
        let is_zero = |sign: u32, all: u32| self.known | sign == all && self.bits & !sign == 0;
        match dtype {
            DType::F32 if is_zero(SIGN, !0) => Some(0),
            DType::F32 if self.known == !0 => whole(f64::from(f32::from_bits(self.bits))),
            DType::F16 if is_zero(SIGN_F16, 0xffff) => Some(0),
            DType::F16 if self.known == 0xffff => whole(f16::from_bits(self.bits as u16).to_f64()),
            DType::I32 if self.known == !0 => Some(i64::from(self.bits as i32)),
            DType::U32 if self.known == !0 => Some(i64::from(self.bits)),
            _ => None,
        }
    }
}

/// The integers that a type holds, those outside of f32's exact ones left out.
pub(super) const fn range(dtype: DType) -> (i64, i64) {
    match dtype {
        DType::I32 => (i32::MIN as i64, i32::MAX as i64),
        DType::U32 => (0, u32::MAX as i64),
        _ => (-EXACT, EXACT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_where_they_are_exact() {
        for dtype in DType::ALL {
            for number in [0, 1, 5, 2048] {
                assert_eq!(Element::of(dtype, Some(number)).number(dtype), Some(number), "{dtype}");
            }
        }
        assert_eq!(Element::of(DType::F16, Some(2049)), Element::UNKNOWN);
        assert_eq!(Element::of(DType::F32, Some(EXACT + 1)), Element::UNKNOWN);
        assert_eq!(Element::of(DType::U32, Some(-1)).bits, u32::MAX);
        assert_eq!(Element { bits: f32::NAN.to_bits(), known: !0 }.number(DType::F32), None);
        assert_eq!(Element { bits: SIGN, known: !0 }.number(DType::F32), Some(0));
    }
}
