//! What a bad call must return.

use backend_api::{BackendError, BackendResult, Bound, DType, ErrorKind};

/// The error that a bad call must return.
#[derive(Clone, Debug)]
pub enum Expect {
    /// This error with these fields. An argument's name counts with and without `_ptr`: positional methods
    /// and descriptors spell it differently.
    Exactly(BackendError),
    /// An error of this kind.
    Kind(ErrorKind),
    /// An error of one of these kinds.
    OneOf(&'static [ErrorKind]),
}

impl Expect {
    pub(super) fn compare(&self, result: &BackendResult<()>) -> Result<(), String> {
        let Err(error) = result else {
            return Err(format!("it succeeded, expected {self:?}"));
        };
        let met = match self {
            Self::Exactly(expected) => *expected == spelled_like_descriptors(error.clone()),
            Self::Kind(kind) => *kind == error.kind(),
            Self::OneOf(kinds) => kinds.contains(&error.kind()),
        };
        if met { Ok(()) } else { Err(format!("got {error:?}, expected {self:?}")) }
    }
}

fn spelled_like_descriptors(mut error: BackendError) -> BackendError {
    use BackendError::{BufferTooSmall, Dtype, InvalidHandle, Misaligned, Overlap};
    match &mut error {
        Overlap { a, b, .. } => {
            for arg in [a, b] {
                *arg = arg.strip_suffix("_ptr").unwrap_or(arg);
            }
        }
        InvalidHandle { arg, .. }
        | BufferTooSmall { arg, .. }
        | Misaligned { arg, .. }
        | Dtype { arg, .. }
            if *arg != "ptr" =>
        {
            *arg = arg.strip_suffix("_ptr").unwrap_or(arg);
        }
        _ => {}
    }
    error
}

pub(super) fn shape(op: &'static str, what: &'static str, expected: usize, got: usize) -> Expect {
    bound(op, what, Bound::Exactly(expected), got)
}

pub(super) fn at_least(op: &'static str, what: &'static str, least: usize, got: usize) -> Expect {
    bound(op, what, Bound::AtLeast(least), got)
}

pub(super) fn at_most(op: &'static str, what: &'static str, most: usize, got: usize) -> Expect {
    bound(op, what, Bound::AtMost(most), got)
}

pub(super) fn less_than(op: &'static str, what: &'static str, limit: usize, got: usize) -> Expect {
    bound(op, what, Bound::LessThan(limit), got)
}

pub(super) fn multiple(op: &'static str, what: &'static str, divisor: usize, got: usize) -> Expect {
    bound(op, what, Bound::MultipleOf(divisor), got)
}

/// The error of a leading dimension that is shorter than a row, called `"lda"` for the matrix A.
pub(super) fn short_row(op: &'static str, what: &'static str, length: usize, got: usize) -> Expect {
    let matrix = ["A", "B", "C"][["lda", "ldb", "ldc"].iter().position(|&ld| ld == what).unwrap_or(0)];
    bound(op, what, Bound::Row { matrix, length }, got)
}

pub(super) fn bound(op: &'static str, what: &'static str, expected: Bound, got: usize) -> Expect {
    Expect::Exactly(BackendError::Shape { op, what, expected, got })
}

pub(super) fn too_small(op: &'static str, arg: &'static str, have: usize, need: usize) -> Expect {
    Expect::Exactly(BackendError::BufferTooSmall { op, arg, have, need })
}

/// [`too_small`] where half as much again is needed.
pub(super) fn too_small_by_half(op: &'static str, arg: &'static str, have: usize) -> Expect {
    too_small(op, arg, have, have / 2 * 3)
}

pub(super) fn overlap(op: &'static str, a: &'static str, b: &'static str) -> Expect {
    Expect::Exactly(BackendError::Overlap { op, a, b })
}

pub(super) fn dtype(op: &'static str, arg: &'static str, got: DType) -> Expect {
    Expect::Exactly(BackendError::Dtype { op, arg, got })
}

pub(super) fn invalid(op: &'static str, arg: &'static str, ptr: u64) -> Expect {
    Expect::Exactly(BackendError::InvalidHandle { op, arg, ptr })
}

pub(super) const OVERFLOW: Expect = Expect::Kind(ErrorKind::Overflow);
pub(super) const SHAPE: Expect = Expect::Kind(ErrorKind::Shape);
pub(super) const TOO_SMALL: Expect = Expect::Kind(ErrorKind::BufferTooSmall);
pub(super) const INVALID: Expect = Expect::Kind(ErrorKind::InvalidHandle);
