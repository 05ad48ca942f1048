//! What the sizes of a call have to be.

use std::fmt;

/// The values of a size that would fit the others of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Bound {
    /// This value alone.
    Exactly(usize),
    /// This value or more.
    AtLeast(usize),
    /// This value or less.
    AtMost(usize),
    /// Less than this value.
    LessThan(usize),
    /// A multiple of this value.
    MultipleOf(usize),
    /// A power of two.
    PowerOfTwo,
    /// A value that isn't in the list yet.
    Unlisted,
    /// For a leading dimension: at least the elements in a row of its matrix as stored.
    Row {
        /// The matrix, such as `"A"`.
        matrix: &'static str,
        /// The elements in its row.
        length: usize,
    },
}

impl fmt::Display for Bound {
    /// The second half of a sentence: "must be 4", "a row of A has 5 elements".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exactly(value) => write!(f, "must be {value}"),
            Self::AtLeast(least) => write!(f, "must be at least {least}"),
            Self::AtMost(most) => write!(f, "must be at most {most}"),
            Self::LessThan(bound) => write!(f, "must be less than {bound}"),
            Self::MultipleOf(divisor) => write!(f, "must be a multiple of {divisor}"),
            Self::PowerOfTwo => f.write_str("must be a power of two"),
            Self::Unlisted => f.write_str("is listed twice"),
            Self::Row { matrix, length: 1 } => write!(f, "a row of {matrix} has 1 element"),
            Self::Row { matrix, length } => write!(f, "a row of {matrix} has {length} elements"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BackendError;

    #[test]
    fn errors_are_sentences() {
        let text = |what, got, expected| BackendError::Shape { op: "gemm", what, expected, got }.to_string();
        let row = Bound::Row { matrix: "A", length: 5 };
        assert_eq!(text("lda", 3, row), "gemm: lda is 3, but a row of A has 5 elements");
        assert_eq!(text("heads", 6, Bound::MultipleOf(4)), "gemm: heads is 6, but must be a multiple of 4");
        assert_eq!(text("axis", 2, Bound::LessThan(2)), "gemm: axis is 2, but must be less than 2");
        assert_eq!(text("axis", 1, Bound::Unlisted), "gemm: axis is 1, but is listed twice");
        assert_eq!(text("groups", 0, Bound::AtLeast(1)), "gemm: groups is 0, but must be at least 1");
        assert_eq!(text("group", 48, Bound::PowerOfTwo), "gemm: group is 48, but must be a power of two");
        assert_eq!(text("rank", 3, Bound::Exactly(4)), "gemm: rank is 3, but must be 4");
    }
}
