//! Inputs that are tensors or single numbers, broadcast to an output.

use crate::operand::{Access, Operand};
use crate::{BackendError, BackendResult, DType};

use super::tensor::{Loop, TensorDesc, broadcast, extent, require_distinct, walk};

/// An input of an element-wise operation: a tensor, or one number without memory, the same for every element.
///
/// A number is taken as f32 beside floating-point tensors, and converted as [`CopyDesc`](super::CopyDesc)
/// would convert it beside integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// A tensor in device memory.
    Tensor(TensorDesc<'a>),
    /// One number.
    Scalar(f64),
}

impl<'a> From<TensorDesc<'a>> for Value<'a> {
    fn from(tensor: TensorDesc<'a>) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<f64> for Value<'_> {
    fn from(number: f64) -> Self {
        Self::Scalar(number)
    }
}

impl Value<'_> {
    /// The element type, where there are elements.
    #[must_use]
    pub const fn dtype(&self) -> Option<DType> {
        match self {
            Self::Tensor(tensor) => Some(tensor.dtype),
            Self::Scalar(_) => None,
        }
    }

    /// The number of a scalar.
    #[must_use]
    pub const fn scalar(&self) -> Option<f64> {
        match self {
            Self::Tensor(_) => None,
            Self::Scalar(number) => Some(*number),
        }
    }
}

/// An input and its names in errors: its own and that of its strides.
pub(super) type Input<'a> = (&'static str, &'static str, Value<'a>);

/// Checks inputs that are broadcast to `output`; `N` is their number and one. Returns the operands and the
/// loops over them, the output last. A scalar is an absent operand with strides of 0.
pub(super) fn broadcast_operands<const N: usize>(
    op: &'static str,
    inputs: &[Input<'_>],
    output: TensorDesc<'_>,
) -> BackendResult<([Operand; N], Vec<Loop<N>>)> {
    let to = output.dims(op, "output strides")?;
    let mut dims: [Vec<(usize, usize)>; N] = std::array::from_fn(|_| to.clone());
    for (&(arg, strides, value), dims) in inputs.iter().zip(&mut dims) {
        *dims = match value {
            Value::Tensor(tensor) => broadcast(op, arg, &tensor.dims(op, strides)?, &to)?,
            Value::Scalar(_) => to.iter().map(|&(extent, _)| (extent, 0)).collect(),
        };
    }
    require_distinct(op, "output", &to)?;
    let written = operand(op, "output", output, &to, Access::Write)?;
    let mut operands = [written; N];
    for (i, &(arg, _, value)) in inputs.iter().enumerate() {
        operands[i] = match value {
            Value::Tensor(tensor) => {
                let access = in_place_if(dims[i] == to && tensor.dtype == output.dtype);
                operand(op, arg, tensor, &dims[i], access)?
            }
            Value::Scalar(_) => Operand::absent(arg),
        };
    }
    let loops = walk(op, std::array::from_fn(|i| dims[i].as_slice()))?;
    Ok((operands, loops))
}

/// The element type of the inputs: that of the first tensor, else `otherwise`. Every other tensor must have
/// it too.
pub(super) fn common_dtype(
    op: &'static str,
    inputs: &[Input<'_>],
    otherwise: DType,
) -> BackendResult<(&'static str, DType)> {
    let mut common = None;
    for &(arg, _, value) in inputs {
        match (value.dtype(), common) {
            (Some(dtype), None) => common = Some((arg, dtype)),
            (Some(got), Some((_, dtype))) => same_dtype(op, arg, got, dtype)?,
            (None, _) => {}
        }
    }
    Ok(common.unwrap_or(("output", otherwise)))
}

pub(super) fn operand(
    op: &'static str,
    arg: &'static str,
    tensor: TensorDesc<'_>,
    dims: &[(usize, usize)],
    access: Access,
) -> BackendResult<Operand> {
    Operand::new(op, arg, tensor.ptr, tensor.dtype, extent(op, arg, dims)?, access)?
        .with_offset(op, tensor.offset)
}

/// Reading and writing at the same strides, each element is read before it is written.
pub(super) fn in_place_if(same_strides: bool) -> Access {
    if same_strides { Access::ReadInPlace } else { Access::Read }
}

pub(super) fn same_dtype(
    op: &'static str,
    arg: &'static str,
    got: DType,
    expected: DType,
) -> BackendResult<()> {
    if got == expected { Ok(()) } else { Err(BackendError::Dtype { op, arg, got }) }
}
