//! Reductions over one axis.

use crate::operand::{Access, Operand};
use crate::{BackendError, BackendResult, DType, ReduceOp, checked_product};

/// `output[outer, inner] = op over axis of input[outer, axis, inner]`, f32, packed. Sums and products are f32.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReduceDesc {
    /// The reduction.
    pub op: ReduceOp,
    /// Handle of the input.
    pub input: u64,
    /// Handle of the output, which has the input's shape without the axis.
    pub output: u64,
    /// Product of the extents before the axis.
    pub outer: usize,
    /// Extent of the axis.
    pub length: usize,
    /// Product of the extents after the axis.
    pub inner: usize,
}

impl ReduceDesc {
    /// From the arguments of the positional method, checking that the shape has the axis.
    pub fn from_axis(
        op: &'static str,
        reduce: ReduceOp,
        input: u64,
        output: u64,
        shape: &[usize],
        axis: usize,
    ) -> BackendResult<Self> {
        let (outer, length, inner) = split_axis(op, shape, axis)?;
        Ok(Self { op: reduce, input, output, outer, length, inner })
    }

    /// Checks the shapes. Returns input and output.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 2]> {
        let input = checked_product(op, "input", &[self.outer, self.length, self.inner])?;
        let output = checked_product(op, "output", &[self.outer, self.inner])?;
        Ok([
            Operand::new(op, "input", self.input, DType::F32, input, Access::Read)?,
            Operand::new(op, "output", self.output, DType::F32, output, Access::Write)?,
        ])
    }
}

/// The extents before, at and after `axis`, as products.
pub(crate) fn split_axis(
    op: &'static str,
    shape: &[usize],
    axis: usize,
) -> BackendResult<(usize, usize, usize)> {
    let Some(&length) = shape.get(axis) else {
        return Err(BackendError::Shape { op, what: "axis (less than)", expected: shape.len(), got: axis });
    };
    checked_product(op, "shape", shape)?;
    let outer = checked_product(op, "shape", &shape[..axis])?;
    let inner = checked_product(op, "shape", &shape[axis + 1..])?;
    Ok((outer, length, inner))
}
