//! What one element of a result must be.

use std::fmt;

use backend_api::DType;

use crate::float::{MIN_NORMAL_F32, min_normal, overflow_threshold, storage_rounding};

/// The accepted values of one element. NaN stands for any NaN.
#[derive(Clone, Debug)]
pub(crate) enum Want {
    /// This number, to the sign of a zero.
    Exact(f64),
    /// A number within `bound` of the exact `value`, before it is rounded to the element type. A zero is
    /// accepted as well when `|value|` may be below `flush_below` or below the smallest normal number.
    Near { value: f64, bound: f64, flush_below: f64 },
    /// Any of these.
    AnyOf(Vec<Self>),
    /// Any number, an infinity or NaN: what is documented to overflow on the way has no bound.
    Anything,
}

impl Want {
    /// Within `bound` of `value`.
    pub(crate) const fn near(value: f64, bound: f64) -> Self {
        Self::Near { value, bound, flush_below: MIN_NORMAL_F32 }
    }

    /// This number; a zero of either sign.
    pub(crate) const fn number(value: f64) -> Self {
        Self::Near { value, bound: 0.0, flush_below: 0.0 }
    }

    /// Accepts what this or one of `others` accepts.
    pub(crate) fn or(self, others: impl IntoIterator<Item = Self>) -> Self {
        let mut all = vec![self];
        all.extend(others);
        if all.len() == 1 { all.remove(0) } else { Self::AnyOf(all) }
    }

    /// Adds `extra` to the bound.
    pub(crate) fn widened(self, extra: f64) -> Self {
        match self {
            Self::Exact(value) => Self::near(value, extra),
            Self::Near { value, bound, flush_below } => {
                Self::Near { value, bound: bound + extra, flush_below }
            }
            Self::AnyOf(all) => Self::AnyOf(all.into_iter().map(|want| want.widened(extra)).collect()),
            Self::Anything => Self::Anything,
        }
    }

    /// The exact value, for statistics over many elements; none where several are accepted.
    pub(crate) const fn value(&self) -> Option<f64> {
        match *self {
            Self::Exact(value) | Self::Near { value, .. } => Some(value),
            Self::AnyOf(_) | Self::Anything => None,
        }
    }

    /// The exact value and how far from it a number may be; none where several values are accepted, or any.
    pub(crate) const fn bounded(&self) -> Option<(f64, f64)> {
        match *self {
            Self::Exact(value) => Some((value, 0.0)),
            Self::Near { value, bound, flush_below } => Some((value, bound + flush_below)),
            Self::AnyOf(_) | Self::Anything => None,
        }
    }

    /// How far off `got` is, as a multiple of what is accepted: up to 1 is right.
    pub(crate) fn miss(&self, got: f64, dtype: DType) -> f64 {
        let right_if = |right| if right { 0.0 } else { f64::INFINITY };
        match *self {
            Self::Exact(value) => {
                right_if(got.to_bits() == value.to_bits() || (got.is_nan() && value.is_nan()))
            }
            Self::Near { value, bound, flush_below } => {
                if !value.is_finite() {
                    return right_if(got == value || (got.is_nan() && value.is_nan()));
                }
                let largest = value.abs() + bound;
                if got.is_infinite() {
                    return right_if(largest >= overflow_threshold(dtype) && (got > 0.0) == (value > 0.0));
                }
                let flushed = flush_below > 0.0 && value.abs() - bound < flush_below.max(min_normal(dtype));
                if got == value || (got == 0.0 && flushed) {
                    return 0.0;
                }
                let is_rounded = bound > 0.0 || dtype == DType::F16;
                let slack = bound + if is_rounded { storage_rounding(dtype, largest) } else { 0.0 };
                let miss = (got - value).abs() / slack;
                if miss.is_nan() { f64::INFINITY } else { miss }
            }
            Self::AnyOf(ref all) => {
                all.iter().map(|want| want.miss(got, dtype)).fold(f64::INFINITY, f64::min)
            }
            Self::Anything => 0.0,
        }
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(value) => write!(f, "exactly {value:?}"),
            Self::Near { value, bound, .. } => write!(f, "{value:e} ± {bound:.2e}"),
            Self::AnyOf(all) => {
                for (i, want) in all.iter().enumerate() {
                    let or = if i == 0 { "" } else { " or " };
                    write!(f, "{or}{want}")?;
                }
                Ok(())
            }
            Self::Anything => write!(f, "anything"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use DType::{F16, F32};

    #[test]
    fn exact_tells_zeros_apart_and_nans_not() {
        assert!(Want::Exact(0.0).miss(-0.0, F32) > 1.0);
        assert!(Want::number(0.0).miss(-0.0, F32) <= 1.0);
        assert!(Want::Exact(f64::NAN).miss(-f64::NAN, F32) <= 1.0);
        assert!(Want::Exact(1.0).miss(f64::NAN, F32) > 1.0);
    }

    #[test]
    fn bounds_are_sharp_and_nan_never_passes() {
        let want = Want::near(1.0, 0.25);
        assert!(want.miss(1.25, F32) <= 1.0);
        assert!(want.miss(1.251, F32) > 1.0);
        assert!(want.miss(f64::NAN, F32) > 1.0);
        assert!(want.miss(f64::INFINITY, F32) > 1.0);
    }

    #[test]
    fn overflow_flush_and_storage() {
        assert!(Want::near(3.4028235e38, 1e32).miss(f64::INFINITY, F32) <= 1.0);
        assert!(Want::near(1e39, 1e32).miss(f64::from(f32::MAX), F32) > 1.0);
        assert!(Want::near(1e-39, 1e-46).miss(0.0, F32) <= 1.0);
        assert!(Want::near(1e-37, 1e-44).miss(0.0, F32) > 1.0);
        assert!(Want::number(1.0 + 1.0 / 2048.0).miss(1.0, F16) <= 1.0);
        assert!(Want::number(1.0).miss(1.0 + 1.0 / 1024.0, F16) > 1.0);
        assert!(Want::near(65_519.0, 0.5).miss(f64::INFINITY, F16) > 1.0);
    }
}
