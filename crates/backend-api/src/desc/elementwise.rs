//! Functions of each element of tensors.

use crate::operand::{Access, Operand};
use crate::{BackendError, BackendResult, BinaryOp, CompareOp, DType, UnaryOp};

use super::tensor::{Loop, TensorDesc, require_distinct, walk};
use super::value::{Value, broadcast_operands, common_dtype, in_place_if, operand, same_dtype};
use super::{require_eq, require_float};

/// `output = op(input)`, element by element. The shapes are equal; the element types are equal, and such that
/// the function [accepts](UnaryOp::accepts) them. The output may be exactly the input.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct UnaryDesc<'a> {
    /// The function.
    pub op: UnaryOp,
    /// Its argument.
    pub input: TensorDesc<'a>,
    /// Where the result goes.
    pub output: TensorDesc<'a>,
    /// The function's parameter α, rounded to f32; of no account where it [has none](UnaryOp::parameters).
    pub alpha: f64,
    /// The function's parameter β, rounded to f32; of no account where it has none.
    pub beta: f64,
}

handles!(UnaryDesc<'_>: input, output);

impl<'a> UnaryDesc<'a> {
    /// `output = op(input)`, with the function's [usual parameters](UnaryOp::default_parameters).
    #[must_use]
    pub const fn new(op: UnaryOp, input: TensorDesc<'a>, output: TensorDesc<'a>) -> Self {
        let [alpha, beta] = op.default_parameters();
        Self { op, input, output, alpha, beta }
    }

    setters! {
        /// With this parameter α.
        pub fn with_alpha(alpha: f64);

        /// With this parameter β.
        pub fn with_beta(beta: f64);
    }

    /// Checks the shapes. Returns input and output, and the loops over (input, output).
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], Vec<Loop<2>>)> {
        require_accepted(op, "input", self.input.dtype, self.op.accepts(self.input.dtype))?;
        same_dtype(op, "output", self.output.dtype, self.input.dtype)?;
        map_operands(op, ["input", "output"], self.input, self.output)
    }
}

/// `output = min(max(input, min), max)`, element by element, as NumPy's `clip`: NaN stays NaN, and with `min`
/// above `max` every element becomes `max`. The shapes are equal, and so are the element types, which may be
/// any. The output may be exactly the input.
///
/// The bounds are converted as [`Value::Scalar`] is; an infinite bound doesn't bound.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ClampDesc<'a> {
    /// Read.
    pub input: TensorDesc<'a>,
    /// Written.
    pub output: TensorDesc<'a>,
    /// The smallest result.
    pub min: f64,
    /// The largest result.
    pub max: f64,
}

handles!(ClampDesc<'_>: input, output);

impl<'a> ClampDesc<'a> {
    /// `output = min(max(input, min), max)`.
    #[must_use]
    pub const fn new(input: TensorDesc<'a>, output: TensorDesc<'a>, min: f64, max: f64) -> Self {
        Self { input, output, min, max }
    }

    /// Checks the shapes. Returns input and output, and the loops over (input, output).
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], Vec<Loop<2>>)> {
        same_dtype(op, "output", self.output.dtype, self.input.dtype)?;
        map_operands(op, ["input", "output"], self.input, self.output)
    }
}

/// `output = scale · input + bias`, element by element, computed in f32. The shapes are equal; the element
/// types are equal and floating-point. The output may be exactly the input.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AffineDesc<'a> {
    /// Read.
    pub input: TensorDesc<'a>,
    /// Written.
    pub output: TensorDesc<'a>,
    /// The factor, rounded to f32.
    pub scale: f64,
    /// What is added, rounded to f32.
    pub bias: f64,
}

handles!(AffineDesc<'_>: input, output);

impl<'a> AffineDesc<'a> {
    /// `output = scale · input + bias`.
    #[must_use]
    pub const fn new(input: TensorDesc<'a>, output: TensorDesc<'a>, scale: f64, bias: f64) -> Self {
        Self { input, output, scale, bias }
    }

    /// Checks the shapes. Returns input and output, and the loops over (input, output).
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], Vec<Loop<2>>)> {
        require_float(op, "input", self.input.dtype)?;
        same_dtype(op, "output", self.output.dtype, self.input.dtype)?;
        map_operands(op, ["input", "output"], self.input, self.output)
    }
}

/// `output = op(a, b)`, element by element with broadcasting: shapes are aligned at their last dimension, and
/// an input's extent of 1 (or a missing one) repeats. The element types are equal, and such that the function
/// [accepts](BinaryOp::accepts) them. Either input may be a number. The output may be exactly an input of the
/// same strides.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BinaryDesc<'a> {
    /// The function.
    pub op: BinaryOp,
    /// Its left argument.
    pub a: Value<'a>,
    /// Its right argument.
    pub b: Value<'a>,
    /// Where the result goes.
    pub output: TensorDesc<'a>,
}

handles!(BinaryDesc<'_>: a, b, output);

impl<'a> BinaryDesc<'a> {
    /// `output = op(a, b)`, where `a` and `b` are a [`TensorDesc`] or an `f64`.
    #[must_use]
    pub fn new(
        op: BinaryOp,
        a: impl Into<Value<'a>>,
        b: impl Into<Value<'a>>,
        output: TensorDesc<'a>,
    ) -> Self {
        Self { op, a: a.into(), b: b.into(), output }
    }

    /// Checks the shapes. Returns a, b and output, and the loops over (a, b, output).
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 3], Vec<Loop<3>>)> {
        let inputs = [("a", "a strides", self.a), ("b", "b strides", self.b)];
        let (arg, dtype) = common_dtype(op, &inputs, self.output.dtype)?;
        require_accepted(op, arg, dtype, self.op.accepts(dtype))?;
        same_dtype(op, "output", self.output.dtype, dtype)?;
        broadcast_operands(op, &inputs, self.output)
    }
}

/// `output = 1 if a op b, else 0`, element by element with broadcasting as [`BinaryDesc`] has it. The inputs'
/// element types are equal and may be any; the output is of u32, as the conditions of [`WhereDesc`] are.
/// Numbers are compared exactly, subnormal ones too. The output may not be an input.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CompareDesc<'a> {
    /// The comparison.
    pub op: CompareOp,
    /// Its left side.
    pub a: Value<'a>,
    /// Its right side.
    pub b: Value<'a>,
    /// Where the result goes, of u32.
    pub output: TensorDesc<'a>,
}

handles!(CompareDesc<'_>: a, b, output);

impl<'a> CompareDesc<'a> {
    /// `output = a op b`, where `a` and `b` are a [`TensorDesc`] or an `f64`.
    #[must_use]
    pub fn new(
        op: CompareOp,
        a: impl Into<Value<'a>>,
        b: impl Into<Value<'a>>,
        output: TensorDesc<'a>,
    ) -> Self {
        Self { op, a: a.into(), b: b.into(), output }
    }

    /// The element type that is compared; f32 for two numbers.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.a.dtype().or(self.b.dtype()).unwrap_or(DType::F32)
    }

    /// Checks the shapes. Returns a, b and output, and the loops over (a, b, output).
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 3], Vec<Loop<3>>)> {
        let inputs = [("a", "a strides", self.a), ("b", "b strides", self.b)];
        common_dtype(op, &inputs, DType::F32)?;
        same_dtype(op, "output", self.output.dtype, DType::U32)?;
        let ([a, b, output], loops) = broadcast_operands(op, &inputs, self.output)?;
        // Words that change their meaning are not overwritten by those that they gave.
        let [a, b] = [a, b].map(|input| Operand { access: Access::Read, ..input });
        Ok(([a, b, output], loops))
    }
}

/// `output = condition ≠ 0 ? a : b`, element by element with broadcasting as [`BinaryDesc`] has it. The
/// condition is of u32; the element types of `a`, `b` and output are equal and may be any. Bits are moved, so
/// NaN keeps its payload. The output may be exactly `a` or `b` of the same strides, but not the condition.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WhereDesc<'a> {
    /// Which of the two it is, of u32.
    pub condition: TensorDesc<'a>,
    /// What is taken where the condition isn't 0.
    pub a: Value<'a>,
    /// What is taken where the condition is 0.
    pub b: Value<'a>,
    /// Where the result goes.
    pub output: TensorDesc<'a>,
}

handles!(WhereDesc<'_>: condition, a, b, output);

impl<'a> WhereDesc<'a> {
    /// `output = condition ≠ 0 ? a : b`, where `a` and `b` are a [`TensorDesc`] or an `f64`.
    #[must_use]
    pub fn new(
        condition: TensorDesc<'a>,
        a: impl Into<Value<'a>>,
        b: impl Into<Value<'a>>,
        output: TensorDesc<'a>,
    ) -> Self {
        Self { condition, a: a.into(), b: b.into(), output }
    }

    /// Checks the shapes. Returns condition, a, b and output, and the loops over (condition, a, b, output).
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 4], Vec<Loop<4>>)> {
        same_dtype(op, "condition", self.condition.dtype, DType::U32)?;
        let condition = ("condition", "condition strides", self.condition.into());
        let values = [("a", "a strides", self.a), ("b", "b strides", self.b)];
        let (_, dtype) = common_dtype(op, &values, self.output.dtype)?;
        same_dtype(op, "output", self.output.dtype, dtype)?;
        let ([condition, a, b, output], loops) =
            broadcast_operands(op, &[condition, values[0], values[1]], self.output)?;
        Ok(([Operand { access: Access::Read, ..condition }, a, b, output], loops))
    }
}

pub(super) fn map_operands(
    op: &'static str,
    [from_arg, to_arg]: [&'static str; 2],
    input: TensorDesc<'_>,
    output: TensorDesc<'_>,
) -> BackendResult<([Operand; 2], Vec<Loop<2>>)> {
    require_eq(op, "rank of the input", output.shape.len(), input.shape.len())?;
    for (&expected, &got) in output.shape.iter().zip(input.shape) {
        require_eq(op, "extent of the input", expected, got)?;
    }
    let from = input.dims(op, "input strides")?;
    let to = output.dims(op, "output strides")?;
    require_distinct(op, to_arg, &to)?;
    let operands = [
        operand(op, from_arg, input, &from, in_place_if(from == to))?,
        operand(op, to_arg, output, &to, Access::Write)?,
    ];
    Ok((operands, walk(op, [&from, &to])?))
}

fn require_accepted(op: &'static str, arg: &'static str, got: DType, accepted: bool) -> BackendResult<()> {
    if accepted { Ok(()) } else { Err(BackendError::Dtype { op, arg, got }) }
}
