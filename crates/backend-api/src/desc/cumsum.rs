//! Cumulative sums.

use crate::operand::{Access, Operand};
use crate::{BackendResult, DType, checked_product};

use super::reduce::split_axis;

/// `output[.., i, ..] = Σ input[.., k, ..]` over k ≤ i along an axis of a packed tensor. The output may be
/// exactly the input.
///
/// Elements of f16 are added in f32, each sum being rounded when it is stored; integers are added modulo 2³².
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CumSumDesc {
    /// Handle of the input.
    pub input: u64,
    /// Handle of the output.
    pub output: u64,
    /// Element type of both.
    pub dtype: DType,
    /// Product of the extents before the axis.
    pub outer: usize,
    /// Extent of the axis.
    pub length: usize,
    /// Product of the extents after the axis.
    pub inner: usize,
    /// Leaves the element at i itself out of its sum: the first sum is 0.
    pub exclusive: bool,
    /// Adds from the end: k ≥ i.
    pub reverse: bool,
}

handles!(CumSumDesc: input, output);

impl CumSumDesc {
    /// Along the last dimension of `rows` rows of `columns` elements.
    #[must_use]
    pub const fn rows(dtype: DType, input: u64, output: u64, rows: usize, columns: usize) -> Self {
        let (exclusive, reverse) = (false, false);
        Self { input, output, dtype, outer: rows, length: columns, inner: 1, exclusive, reverse }
    }

    /// Along `axis` of a tensor of `shape`.
    ///
    /// # Errors
    /// [`Shape`](crate::BackendError::Shape) if there is no such axis,
    /// [`Overflow`](crate::BackendError::Overflow).
    pub fn along(dtype: DType, input: u64, output: u64, shape: &[usize], axis: usize) -> BackendResult<Self> {
        let (outer, length, inner) = split_axis("cumsum", shape, axis)?;
        Ok(Self { outer, length, inner, ..Self::rows(dtype, input, output, 0, 0) })
    }

    setters! {
        /// Leaves the element at i itself out.
        pub fn with_exclusive(exclusive = true);

        /// Adds from the end.
        pub fn with_reverse(reverse = true);
    }

    /// Checks the shapes. Returns input and output.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 2]> {
        let elements = checked_product(op, "input", &[self.outer, self.length, self.inner])?;
        Ok([
            Operand::new(op, "input", self.input, self.dtype, elements, Access::ReadInPlace)?,
            Operand::new(op, "output", self.output, self.dtype, elements, Access::Write)?,
        ])
    }
}
