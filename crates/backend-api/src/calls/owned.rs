//! Commands that own what their descriptors refer to.

use super::Call;
use crate::command::for_each_operation;
use crate::desc::*;
use crate::{Command, DType};

/// A descriptor whose call can be made again, after what it refers to is gone.
trait Owned {
    /// The call of the operation, under the name `op`.
    fn call(&self, op: &'static str) -> Call;
}

macro_rules! owned_calls {
    ($($(#[$meta:meta])* fn $method:ident(&$desc:ident $(<$borrowed:lifetime>)?) => $variant:ident($held:ty);)*) => {
        /// The call of `command`, under the name `op`.
        pub(super) fn call(op: &'static str, command: Command<'_>) -> Call {
            match command {
                $(Command::$variant(desc) => desc.call(op),)*
                Command::Fill { dst, dtype, n, value } => {
                    Box::new(move |backend| backend.execute(op, Command::Fill { dst, dtype, n, value }))
                }
                Command::CopyBytes { dst, src, bytes } => {
                    Box::new(move |backend| backend.execute(op, Command::CopyBytes { dst, src, bytes }))
                }
            }
        }

        $(owned_calls!(@whole $desc, $variant $(, $borrowed)?);)*
    };
    // A descriptor without references is copied.
    (@whole $desc:ident, $variant:ident) => {
        impl Owned for $desc {
            fn call(&self, op: &'static str) -> Call {
                let desc = *self;
                Box::new(move |backend| backend.execute(op, Command::$variant(&desc)))
            }
        }
    };
    (@whole $desc:ident, $variant:ident, $borrowed:lifetime) => {};
}

for_each_operation!(owned_calls);

/// Descriptors that refer to tensors and values alone.
macro_rules! owned_operands {
    ($($desc:ident as $variant:ident {
        tensors: [$($tensor:ident),*], values: [$($value:ident),*], copied: [$($copied:ident),*]
    })*) => {
        $(impl Owned for $desc<'_> {
            fn call(&self, op: &'static str) -> Call {
                let Self { $($tensor,)* $($value,)* $($copied,)* } = *self;
                $(let $tensor = OwnedTensor::from($tensor);)*
                $(let $value = OwnedValue::from($value);)*
                Box::new(move |backend| {
                    let desc =
                        $desc { $($tensor: $tensor.desc(),)* $($value: $value.desc(),)* $($copied,)* };
                    backend.execute(op, Command::$variant(&desc))
                })
            }
        })*
    };
}

owned_operands! {
    UnaryDesc as Unary { tensors: [input, output], values: [], copied: [op, alpha, beta] }
    BinaryDesc as Binary { tensors: [output], values: [a, b], copied: [op] }
    CompareDesc as Compare { tensors: [output], values: [a, b], copied: [op] }
    WhereDesc as Where { tensors: [condition, output], values: [a, b], copied: [] }
    ClampDesc as Clamp { tensors: [input, output], values: [], copied: [min, max] }
    AffineDesc as Affine { tensors: [input, output], values: [], copied: [scale, bias] }
    CopyDesc as Copy { tensors: [src, dst], values: [], copied: [] }
    RepeatDesc as Repeat { tensors: [input, output], values: [], copied: [interleaved] }
}

impl Owned for PermuteDesc<'_> {
    fn call(&self, op: &'static str) -> Call {
        let PermuteDesc { input, output, axes } = *self;
        let ([input, output], axes) = ([input, output].map(OwnedTensor::from), axes.to_vec());
        Box::new(move |backend| {
            let desc = PermuteDesc { input: input.desc(), output: output.desc(), axes: &axes };
            backend.execute(op, Command::Permute(&desc))
        })
    }
}

impl Owned for SliceDesc<'_> {
    fn call(&self, op: &'static str) -> Call {
        let SliceDesc { input, output, starts, steps } = *self;
        let [input, output] = [input, output].map(OwnedTensor::from);
        let (starts, steps) = (starts.to_vec(), steps.map(<[usize]>::to_vec));
        Box::new(move |backend| {
            let (input, output) = (input.desc(), output.desc());
            let desc = SliceDesc { input, output, starts: &starts, steps: steps.as_deref() };
            backend.execute(op, Command::Slice(&desc))
        })
    }
}

impl Owned for ConcatDesc<'_> {
    fn call(&self, op: &'static str) -> Call {
        let ConcatDesc { inputs, output, axis } = *self;
        let inputs: Vec<OwnedTensor> = inputs.iter().map(|&input| input.into()).collect();
        let output = OwnedTensor::from(output);
        Box::new(move |backend| {
            let inputs: Vec<_> = inputs.iter().map(OwnedTensor::desc).collect();
            let desc = ConcatDesc { inputs: &inputs, output: output.desc(), axis };
            backend.execute(op, Command::Concat(&desc))
        })
    }
}

impl Owned for PadDesc<'_> {
    fn call(&self, op: &'static str) -> Call {
        let PadDesc { input, output, before, value } = *self;
        let ([input, output], before) = ([input, output].map(OwnedTensor::from), before.to_vec());
        Box::new(move |backend| {
            let (input, output) = (input.desc(), output.desc());
            backend.execute(op, Command::Pad(&PadDesc { input, output, before: &before, value }))
        })
    }
}

impl Owned for ReduceDesc<'_> {
    fn call(&self, op: &'static str) -> Call {
        let ReduceDesc { op: function, input, axes, output, output_dtype, output_strides } = *self;
        let (input, axes) = (OwnedTensor::from(input), axes.to_vec());
        let strides = output_strides.map(<[usize]>::to_vec);
        Box::new(move |backend| {
            let (input, output_strides) = (input.desc(), strides.as_deref());
            let desc = ReduceDesc { op: function, input, axes: &axes, output, output_dtype, output_strides };
            backend.execute(op, Command::Reduce(&desc))
        })
    }
}

/// A [`TensorDesc`] that owns its shape and strides.
#[derive(Debug)]
pub(super) struct OwnedTensor {
    ptr: u64,
    dtype: DType,
    offset: usize,
    shape: Box<[usize]>,
    strides: Option<Box<[usize]>>,
}

impl OwnedTensor {
    pub(super) fn desc(&self) -> TensorDesc<'_> {
        let Self { ptr, dtype, offset, shape, strides } = self;
        TensorDesc { ptr: *ptr, dtype: *dtype, offset: *offset, shape, strides: strides.as_deref() }
    }
}

impl From<TensorDesc<'_>> for OwnedTensor {
    fn from(tensor: TensorDesc<'_>) -> Self {
        let TensorDesc { ptr, dtype, offset, shape, strides } = tensor;
        Self { ptr, dtype, offset, shape: shape.into(), strides: strides.map(Into::into) }
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
