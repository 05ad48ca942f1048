//! Descriptors that own their shapes.

use crate::DType;
use crate::desc::{TensorDesc, Value};

/// A [`TensorDesc`] that owns its shape and strides.
#[derive(Debug)]
pub(super) struct OwnedTensor {
    ptr: u64,
    dtype: DType,
    shape: Box<[usize]>,
    strides: Option<Box<[usize]>>,
}

impl OwnedTensor {
    pub(super) fn desc(&self) -> TensorDesc<'_> {
        let Self { ptr, dtype, shape, strides } = self;
        TensorDesc { ptr: *ptr, dtype: *dtype, shape, strides: strides.as_deref() }
    }
}

impl From<TensorDesc<'_>> for OwnedTensor {
    fn from(tensor: TensorDesc<'_>) -> Self {
        let TensorDesc { ptr, dtype, shape, strides } = tensor;
        Self { ptr, dtype, shape: shape.into(), strides: strides.map(Into::into) }
    }
}

/// A [`Value`] that owns its tensor's shape and strides.
#[derive(Debug)]
pub(super) enum OwnedValue {
    Tensor(OwnedTensor),
    Scalar(f64),
}

impl OwnedValue {
    pub(super) fn desc(&self) -> Value<'_> {
        match self {
            Self::Tensor(tensor) => Value::Tensor(tensor.desc()),
            Self::Scalar(number) => Value::Scalar(*number),
        }
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Tensor(tensor) => Self::Tensor(tensor.into()),
            Value::Scalar(number) => Self::Scalar(number),
        }
    }
}
