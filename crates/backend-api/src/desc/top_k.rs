//! The largest or smallest numbers of rows, in order.

use crate::operand::{Access, Operand};
use crate::{BackendResult, Bound, DType, checked_product};

use super::{require, require_float};

/// The `k` largest or smallest elements of each row, in order, with their indices. Of equal elements the one with
/// the lower index comes first, so that with `k = columns` it is a stable sort, whose indices are NumPy's
/// stable argsort. NaN counts as larger than +∞, and zeros of both signs as equal.
///
/// With a [`softmax`](Self::softmax), the values are probabilities, as a router of a mixture of experts takes them.
///
/// The rows are packed: along another axis than the last, the tensor is [permuted](super::PermuteDesc) first.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TopKDesc {
    /// Handle of the input, `[rows, columns]`.
    pub input: u64,
    /// Handle of the indices, i32 `[rows, k]`.
    pub indices: u64,
    /// Handle of the values, `[rows, k]`, if they are asked for.
    pub values: Option<u64>,
    /// Element type of input and values; any.
    pub dtype: DType,
    /// Number of rows.
    pub rows: usize,
    /// Elements in a row.
    pub columns: usize,
    /// How many are looked for; at most `columns`.
    pub k: usize,
    /// Whether the largest are looked for rather than the smallest.
    pub largest: bool,
    /// Over which elements the softmax is taken whose results are the values, if they are; of f32 or f16.
    pub softmax: Option<SoftmaxOver>,
}

/// The elements of a row whose probabilities sum to 1: with their largest m, the value of x is exp(x − m) / Σ exp(x − m), as of
/// [`softmax`](crate::ComputeBackend::softmax).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SoftmaxOver {
    /// The k that are found.
    Found,
    /// All of the row.
    Row,
}

handles!(TopKDesc: input, indices, values);

impl TopKDesc {
    /// The indices of the `k` largest elements of each row, in descending order.
    #[must_use]
    pub const fn new(dtype: DType, input: u64, indices: u64, rows: usize, columns: usize, k: usize) -> Self {
        Self { input, indices, values: None, dtype, rows, columns, k, largest: true, softmax: None }
    }

    /// The indices that sort each row in ascending order.
    #[must_use]
    pub const fn argsort(dtype: DType, input: u64, indices: u64, rows: usize, columns: usize) -> Self {
        Self::new(dtype, input, indices, rows, columns, columns).with_smallest()
    }

    setters! {
        /// Looks for the smallest, in ascending order.
        pub fn with_smallest(largest = false);

        /// Writes the values too.
        pub fn with_values(Some(values): u64);

        /// Makes probabilities of the values.
        pub fn with_softmax(Some(softmax): SoftmaxOver);
    }

    /// Checks the shapes. Returns input, indices and values.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 3]> {
        require(op, "k", Bound::AtMost(self.columns), self.k, self.k <= self.columns)?;
        if self.softmax.is_some() {
            require_float(op, "values", self.dtype)?;
        }
        let input = checked_product(op, "input", &[self.rows, self.columns])?;
        let found = checked_product(op, "indices", &[self.rows, self.k])?;
        let input = if found == 0 { 0 } else { input };
        Ok([
            Operand::new(op, "input", self.input, self.dtype, input, Access::Read)?,
            Operand::new(op, "indices", self.indices, DType::I32, found, Access::Write)?,
            Operand::optional(op, "values", self.values, self.dtype, found, Access::Write)?,
        ])
    }
}
