//! How kernels read and write storage: number by number, or in vectors.

use backend_api::DType;

use crate::kernels::Lib;
use crate::kernels::libs::{ROW_SHUFFLES, ROWS_HALVES, ROWS_WHOLE, VEC_1, VEC_2, VEC_4, WORKGROUP};
use crate::recorder::Window;

/// The elements that a kernel reads with one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum VecWidth {
    One,
    /// A word of f16, of rows that may begin in the middle of one.
    Two,
    Four,
    Eight,
}

impl VecWidth {
    /// The elements of a 16-byte vector of `dtype`.
    pub(in crate::ops) const fn of(dtype: DType) -> Self {
        if dtype.size() == 2 { Self::Eight } else { Self::Four }
    }

    /// This width where memory can be read by vectors, else one element.
    pub(in crate::ops) const fn if_vectors(self, vectors: bool) -> Self {
        if vectors { self } else { Self::One }
    }

    /// The helper file of kernels that also write, which take vectors of at most four.
    pub(in crate::ops) fn libs(self) -> &'static [Lib] {
        if self == Self::One { &[VEC_1] } else { &[VEC_4] }
    }

    /// The helper files of kernels whose invocations share rows, as [`Rows`](super::rows::Rows) plans them.
    pub(in crate::ops) fn row_libs(self) -> &'static [Lib] {
        match self {
            Self::One => &[VEC_1, ROWS_WHOLE],
            Self::Two => &[VEC_2, ROWS_HALVES],
            _ => &[VEC_4, ROWS_WHOLE],
        }
    }

    /// [`row_libs`](Self::row_libs) with what joins the results of a row's invocations, in a workgroup or within
    /// subgroups.
    pub(in crate::ops) fn joined_row_libs(self, shuffled: bool) -> &'static [Lib] {
        match (self, shuffled) {
            (Self::One, false) => &[VEC_1, ROWS_WHOLE, WORKGROUP],
            (Self::One, true) => &[VEC_1, ROWS_WHOLE, ROW_SHUFFLES],
            (Self::Two, false) => &[VEC_2, ROWS_HALVES, WORKGROUP],
            (Self::Two, true) => &[VEC_2, ROWS_HALVES, ROW_SHUFFLES],
            (_, false) => &[VEC_4, ROWS_WHOLE, WORKGROUP],
            (_, true) => &[VEC_4, ROWS_WHOLE, ROW_SHUFFLES],
        }
    }

    /// Each for which a kernel over `dtype` has a variant.
    pub(in crate::ops) const fn all(dtype: DType) -> [Self; 2] {
        [Self::One, Self::of(dtype)]
    }

    pub(in crate::ops) const fn width(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// The elements of a 16-byte vector of `dtype` where every window starts at one and every stride is whole
    /// vectors; else one.
    pub(in crate::ops) fn fitting(dtype: DType, windows: &[&Window], strides: &[usize]) -> Self {
        Self::of(dtype).if_fitting(windows, strides)
    }

    /// Four where every window starts at a multiple of four elements and every stride is one; else one.
    pub(in crate::ops) fn four_if_fitting(windows: &[&Window], strides: &[usize]) -> Self {
        Self::Four.if_fitting(windows, strides)
    }

    /// How row groups access packed rows of `length` elements, of which each may begin anywhere.
    pub(in crate::ops) fn of_rows(dtype: DType, length: usize, windows: &[&Window]) -> Self {
        match Self::four_if_fitting(windows, &[length]) {
            Self::One if dtype == DType::F16 && in_words(length, windows) => Self::Two,
            fitting => fitting,
        }
    }

    /// The fewest whole vectors that a row of `length` elements has.
    pub(in crate::ops) const fn whole_vectors_of_row(self, length: usize) -> usize {
        match self {
            Self::Two => length.saturating_sub(1) / 2,
            _ => length / self.width(),
        }
    }

    fn if_fitting(self, windows: &[&Window], strides: &[usize]) -> Self {
        let whole = |n: usize| n.is_multiple_of(self.width());
        // Bindings start at multiples of 32 bytes or more.
        let fits = strides.iter().all(|&n| whole(n)) && windows.iter().all(|w| whole(w.offset as usize));
        if fits { self } else { Self::One }
    }
}

/// Whether rows of f16 begin in the same half of a word in every window, and workgroups can have all rows that
/// share a word: where all begin in the middle of one, each shares two.
fn in_words(length: usize, windows: &[&Window]) -> bool {
    let halves = |window: &&Window| window.offset % 2;
    let first = windows.first().map_or(0, halves);
    windows.iter().all(|window| halves(window) == first) && (first == 0 || !length.is_multiple_of(2))
}
