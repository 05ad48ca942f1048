//! The strided copy.

use crate::BackendResult;
use crate::operand::{Access, Operand};

use super::elementwise::map_operands;
use super::tensor::{Loop, TensorDesc};

/// `dst = src`, converting the element type. The shapes are equal.
///
/// A float becomes an integer by dropping its fraction, clamped to the integer's range, NaN becoming 0; f32 becomes
/// f16 by rounding to the nearest, halves to even. With strides, the same operation transposes, and makes a tensor
/// contiguous.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CopyDesc<'a> {
    /// Read.
    pub src: TensorDesc<'a>,
    /// Written.
    pub dst: TensorDesc<'a>,
}

impl<'a> CopyDesc<'a> {
    /// `dst = src`.
    #[must_use]
    pub const fn new(src: TensorDesc<'a>, dst: TensorDesc<'a>) -> Self {
        Self { src, dst }
    }

    /// Checks the shapes. Returns source and destination, and the loops over (source, destination).
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], Vec<Loop<2>>)> {
        let ([src, dst], loops) = map_operands(op, self.src, self.dst)?;
        Ok(([Operand { arg: "src", access: Access::Read, ..src }, Operand { arg: "dst", ..dst }], loops))
    }
}
