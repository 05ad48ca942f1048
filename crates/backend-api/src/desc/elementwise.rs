//! Unary, binary and copy over strided tensors.

use crate::operand::{Access, Operand};
use crate::{BackendResult, BinaryOp, DType, UnaryOp};

use super::tensor::{Loop, TensorDesc, broadcast, extent, require_distinct, walk};
use super::{require_eq, require_float};

/// `output = op(input)`, element by element. The shapes are equal; the element types are equal and floating-point.
/// The output may be exactly the input.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UnaryDesc<'a> {
    /// The function.
    pub op: UnaryOp,
    /// Its argument.
    pub input: TensorDesc<'a>,
    /// Where the result goes.
    pub output: TensorDesc<'a>,
}

impl<'a> UnaryDesc<'a> {
    /// `output = op(input)`.
    #[must_use]
    pub const fn new(op: UnaryOp, input: TensorDesc<'a>, output: TensorDesc<'a>) -> Self {
        Self { op, input, output }
    }

    /// Checks the shapes. Returns input and output, and the loops over (input, output).
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], Vec<Loop<2>>)> {
        require_float(op, "input", self.input.dtype)?;
        same_dtype(op, "output", self.output.dtype, self.input.dtype)?;
        map_operands(op, self.input, self.output)
    }
}

/// `dst = src`, converting the element type. The shapes are equal.
///
/// A float becomes an integer by dropping its fraction, clamped to the integer's range, NaN becoming 0; f32 becomes
/// f16 by rounding to the nearest, halves to even.
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

/// `output = op(a, b)`, element by element with broadcasting: shapes are aligned at their last dimension, and an
/// input's extent of 1 (or a missing one) repeats. The element types are equal and floating-point. The output may
/// be exactly an input of the same strides.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BinaryDesc<'a> {
    /// The function.
    pub op: BinaryOp,
    /// Its left argument.
    pub a: TensorDesc<'a>,
    /// Its right argument.
    pub b: TensorDesc<'a>,
    /// Where the result goes.
    pub output: TensorDesc<'a>,
}

impl<'a> BinaryDesc<'a> {
    /// `output = op(a, b)`.
    #[must_use]
    pub const fn new(op: BinaryOp, a: TensorDesc<'a>, b: TensorDesc<'a>, output: TensorDesc<'a>) -> Self {
        Self { op, a, b, output }
    }

    /// Checks the shapes. Returns a, b and output, and the loops over (a, b, output).
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 3], Vec<Loop<3>>)> {
        require_float(op, "a", self.a.dtype)?;
        same_dtype(op, "b", self.b.dtype, self.a.dtype)?;
        same_dtype(op, "output", self.output.dtype, self.a.dtype)?;
        let output = self.output.dims(op, "output strides")?;
        let a = broadcast(op, "a", &self.a.dims(op, "a strides")?, &output)?;
        let b = broadcast(op, "b", &self.b.dims(op, "b strides")?, &output)?;
        require_distinct(op, "output", &output)?;
        let access = |dims: &[(usize, usize)]| in_place_if(dims == output);
        Ok((
            [
                operand(op, "a", self.a, &a, access(&a))?,
                operand(op, "b", self.b, &b, access(&b))?,
                operand(op, "output", self.output, &output, Access::Write)?,
            ],
            walk(op, [&a, &b, &output])?,
        ))
    }
}

fn map_operands(
    op: &'static str,
    input: TensorDesc<'_>,
    output: TensorDesc<'_>,
) -> BackendResult<([Operand; 2], Vec<Loop<2>>)> {
    require_eq(op, "rank of the input", output.shape.len(), input.shape.len())?;
    for (&expected, &got) in output.shape.iter().zip(input.shape) {
        require_eq(op, "extent of the input", expected, got)?;
    }
    let from = input.dims(op, "input strides")?;
    let to = output.dims(op, "output strides")?;
    require_distinct(op, "output", &to)?;
    let operands = [
        operand(op, "input", input, &from, in_place_if(from == to))?,
        operand(op, "output", output, &to, Access::Write)?,
    ];
    Ok((operands, walk(op, [&from, &to])?))
}

fn operand(
    op: &'static str,
    arg: &'static str,
    tensor: TensorDesc<'_>,
    dims: &[(usize, usize)],
    access: Access,
) -> BackendResult<Operand> {
    Operand::new(op, arg, tensor.ptr, tensor.dtype, extent(op, arg, dims)?, access)
}

/// Reading and writing at the same strides, each element is read before it is written.
fn in_place_if(same_strides: bool) -> Access {
    if same_strides { Access::ReadInPlace } else { Access::Read }
}

fn same_dtype(op: &'static str, arg: &'static str, got: DType, expected: DType) -> BackendResult<()> {
    if got == expected { Ok(()) } else { Err(crate::BackendError::Dtype { op, arg, got }) }
}
