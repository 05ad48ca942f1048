//! The strided copy.

use crate::BackendResult;
use crate::operand::{Access, Operand};

use super::elementwise::map_operands;
use super::tensor::{Loop, TensorDesc};

/// `dst = src`, converting the element type. The shapes are equal.
///
/// A float becomes an integer by dropping its fraction, clamped to the integer's range, NaN becoming 0; f32
/// becomes f16 by rounding to the nearest, halves to even. With strides, the same operation transposes, and
/// makes a tensor contiguous.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CopyDesc<'a> {
    /// Source tensor.
    pub src: TensorDesc<'a>,
    /// Destination tensor.
    pub dst: TensorDesc<'a>,
}

handles!(CopyDesc<'_>: src, dst);

impl<'a> CopyDesc<'a> {
    /// `dst = src`.
    #[must_use]
    pub const fn new(src: TensorDesc<'a>, dst: TensorDesc<'a>) -> Self {
        Self { src, dst }
    }

    /// Checks the shapes. Returns source and destination, and the loops over (source, destination).
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], Vec<Loop<2>>)> {
        let ([src, dst], loops) = map_operands(op, ["src", "dst"], self.src, self.dst)?;
        Ok(([Operand { access: Access::Read, ..src }, dst], loops))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendError, DType};

    #[test]
    fn an_error_names_the_arguments_of_a_copy() {
        let shape = [2, 3];
        let src = TensorDesc::packed(1, DType::F32, &shape);
        let dst = TensorDesc::strided(2, DType::F32, &shape, &[0, 1]);
        let error = CopyDesc::new(src, dst).operands("copy").unwrap_err();
        assert_eq!(error, BackendError::Overlap { op: "copy", a: "dst", b: "dst" });
    }
}
