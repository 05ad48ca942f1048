//! How kernels read and write storage: number by number, or in vectors of 16 bytes.

use backend_api::DType;

use crate::recorder::Window;

/// Bytes that one load moves at most.
const VECTOR_BYTES: usize = 16;

/// The numbers that a kernel reads with one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lanes {
    One,
    Four,
    Eight,
}

impl Lanes {
    /// Those of a vector of `dtype`.
    pub(super) const fn of(dtype: DType) -> Self {
        if dtype.size() == 2 { Self::Eight } else { Self::Four }
    }

    /// Each for which a kernel over `dtype` has a variant.
    pub(super) const fn all(dtype: DType) -> [Self; 2] {
        [Self::One, Self::of(dtype)]
    }

    pub(super) const fn width(self) -> usize {
        match self {
            Self::One => 1,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// Vectors where every one of `windows` starts at one, and every number of `strides` is whole vectors.
    pub(super) fn fitting(dtype: DType, windows: &[&Window], strides: &[usize]) -> Self {
        let lanes = Self::of(dtype);
        let whole = |n: usize| n.is_multiple_of(lanes.width());
        // A binding that ends within a vector hides it.
        let bound = |window: &Window| {
            whole(window.offset as usize) && window.start.is_multiple_of(VECTOR_BYTES as u64)
        };
        if strides.iter().all(|&n| whole(n)) && windows.iter().all(|window| bound(window)) {
            lanes
        } else {
            Self::One
        }
    }
}
