//! Commands that own what their descriptors refer to.

use super::Call;
use crate::desc::{
    AffineDesc, BinaryDesc, ClampDesc, CompareDesc, ConcatDesc, CopyDesc, PadDesc, PermuteDesc, ReduceDesc,
    RepeatDesc, SliceDesc, TensorDesc, UnaryDesc, Value, WhereDesc,
};
use crate::{Command, DType};

/// The call of `command`, under the name `op`.
pub(super) fn call(op: &'static str, command: Command<'_>) -> Call {
    match command {
        Command::Matmul(desc) => held(op, *desc, |desc| Command::Matmul(desc)),
        Command::QuantMatmul(desc) => held(op, *desc, |desc| Command::QuantMatmul(desc)),
        Command::QuantGather(desc) => held(op, *desc, |desc| Command::QuantGather(desc)),
        Command::Dequantize(desc) => held(op, *desc, |desc| Command::Dequantize(desc)),
        Command::Attention(desc) => held(op, *desc, |desc| Command::Attention(desc)),
        Command::Softmax(desc) => held(op, *desc, |desc| Command::Softmax(desc)),
        Command::LayerNorm(desc) => held(op, *desc, |desc| Command::LayerNorm(desc)),
        Command::RmsNorm(desc) => held(op, *desc, |desc| Command::RmsNorm(desc)),
        Command::GroupNorm(desc) => held(op, *desc, |desc| Command::GroupNorm(desc)),
        Command::BatchNorm(desc) => held(op, *desc, |desc| Command::BatchNorm(desc)),
        Command::CumSum(desc) => held(op, *desc, |desc| Command::CumSum(desc)),
        Command::SoftmaxBackward(desc) => held(op, *desc, |desc| Command::SoftmaxBackward(desc)),
        Command::NormBackward(desc) => held(op, *desc, |desc| Command::NormBackward(desc)),
        Command::NormBackwardWeight(desc) => held(op, *desc, |desc| Command::NormBackwardWeight(desc)),
        Command::Conv(desc) => held(op, *desc, |desc| Command::Conv(desc)),
        Command::ConvTranspose(desc) => held(op, *desc, |desc| Command::ConvTranspose(desc)),
        Command::ConvBackwardData(desc) => held(op, *desc, |desc| Command::ConvBackwardData(desc)),
        Command::ConvBackwardFilter(desc) => held(op, *desc, |desc| Command::ConvBackwardFilter(desc)),
        Command::Pool(desc) => held(op, *desc, |desc| Command::Pool(desc)),
        Command::PoolBackward(desc) => held(op, *desc, |desc| Command::PoolBackward(desc)),
        Command::Rope(desc) => held(op, *desc, |desc| Command::Rope(desc)),
        Command::Gather(desc) => held(op, *desc, |desc| Command::Gather(desc)),
        Command::Scatter(desc) => held(op, *desc, |desc| Command::Scatter(desc)),
        Command::Random(desc) => held(op, *desc, |desc| Command::Random(desc)),
        Command::Fill { dst, dtype, n, value } => {
            Box::new(move |backend| backend.execute(op, Command::Fill { dst, dtype, n, value }))
        }
        Command::CopyBytes { dst, src, bytes } => {
            Box::new(move |backend| backend.execute(op, Command::CopyBytes { dst, src, bytes }))
        }
        Command::Unary(desc) => unary(op, desc),
        Command::Binary(desc) => binary(op, desc),
        Command::Compare(desc) => compare(op, desc),
        Command::Where(desc) => choose(op, desc),
        Command::Clamp(desc) => clamp(op, desc),
        Command::Affine(desc) => affine(op, desc),
        Command::Copy(desc) => copy(op, desc),
        Command::Permute(desc) => permute(op, desc),
        Command::Slice(desc) => slice(op, desc),
        Command::Concat(desc) => concat(op, desc),
        Command::Pad(desc) => pad(op, desc),
        Command::Repeat(desc) => repeat(op, desc),
        Command::Reduce(desc) => reduce(op, desc),
    }
}

/// The call of a descriptor without references.
fn held<D: Send + Sync + 'static>(op: &'static str, desc: D, command: fn(&D) -> Command<'_>) -> Call {
    Box::new(move |backend| backend.execute(op, command(&desc)))
}

fn unary(op: &'static str, desc: &UnaryDesc<'_>) -> Call {
    let UnaryDesc { op: function, input, output } = *desc;
    let [input, output] = [input, output].map(OwnedTensor::from);
    Box::new(move |backend| {
        let desc = UnaryDesc { op: function, input: input.desc(), output: output.desc() };
        backend.execute(op, Command::Unary(&desc))
    })
}

fn binary(op: &'static str, desc: &BinaryDesc<'_>) -> Call {
    let BinaryDesc { op: function, a, b, output } = *desc;
    let ([a, b], output) = ([a, b].map(OwnedValue::from), OwnedTensor::from(output));
    Box::new(move |backend| {
        let desc = BinaryDesc { op: function, a: a.desc(), b: b.desc(), output: output.desc() };
        backend.execute(op, Command::Binary(&desc))
    })
}

fn compare(op: &'static str, desc: &CompareDesc<'_>) -> Call {
    let CompareDesc { op: function, a, b, output } = *desc;
    let ([a, b], output) = ([a, b].map(OwnedValue::from), OwnedTensor::from(output));
    Box::new(move |backend| {
        let desc = CompareDesc { op: function, a: a.desc(), b: b.desc(), output: output.desc() };
        backend.execute(op, Command::Compare(&desc))
    })
}

fn choose(op: &'static str, desc: &WhereDesc<'_>) -> Call {
    let WhereDesc { condition, a, b, output } = *desc;
    let [condition, output] = [condition, output].map(OwnedTensor::from);
    let [a, b] = [a, b].map(OwnedValue::from);
    Box::new(move |backend| {
        let (condition, output) = (condition.desc(), output.desc());
        let desc = WhereDesc { condition, a: a.desc(), b: b.desc(), output };
        backend.execute(op, Command::Where(&desc))
    })
}

fn clamp(op: &'static str, desc: &ClampDesc<'_>) -> Call {
    let ClampDesc { input, output, min, max } = *desc;
    let [input, output] = [input, output].map(OwnedTensor::from);
    Box::new(move |backend| {
        let desc = ClampDesc { input: input.desc(), output: output.desc(), min, max };
        backend.execute(op, Command::Clamp(&desc))
    })
}

fn affine(op: &'static str, desc: &AffineDesc<'_>) -> Call {
    let AffineDesc { input, output, scale, bias } = *desc;
    let [input, output] = [input, output].map(OwnedTensor::from);
    Box::new(move |backend| {
        let desc = AffineDesc { input: input.desc(), output: output.desc(), scale, bias };
        backend.execute(op, Command::Affine(&desc))
    })
}

fn copy(op: &'static str, desc: &CopyDesc<'_>) -> Call {
    let CopyDesc { src, dst } = *desc;
    let [src, dst] = [src, dst].map(OwnedTensor::from);
    Box::new(move |backend| {
        let desc = CopyDesc { src: src.desc(), dst: dst.desc() };
        backend.execute(op, Command::Copy(&desc))
    })
}

fn permute(op: &'static str, desc: &PermuteDesc<'_>) -> Call {
    let PermuteDesc { input, output, axes } = *desc;
    let ([input, output], axes) = ([input, output].map(OwnedTensor::from), axes.to_vec());
    Box::new(move |backend| {
        let desc = PermuteDesc { input: input.desc(), output: output.desc(), axes: &axes };
        backend.execute(op, Command::Permute(&desc))
    })
}

fn slice(op: &'static str, desc: &SliceDesc<'_>) -> Call {
    let SliceDesc { input, output, starts, steps } = *desc;
    let [input, output] = [input, output].map(OwnedTensor::from);
    let (starts, steps) = (starts.to_vec(), steps.map(<[usize]>::to_vec));
    Box::new(move |backend| {
        let (input, output) = (input.desc(), output.desc());
        let desc = SliceDesc { input, output, starts: &starts, steps: steps.as_deref() };
        backend.execute(op, Command::Slice(&desc))
    })
}

fn concat(op: &'static str, desc: &ConcatDesc<'_>) -> Call {
    let ConcatDesc { inputs, output, axis } = *desc;
    let inputs: Vec<OwnedTensor> = inputs.iter().map(|&input| input.into()).collect();
    let output = OwnedTensor::from(output);
    Box::new(move |backend| {
        let inputs: Vec<_> = inputs.iter().map(OwnedTensor::desc).collect();
        let desc = ConcatDesc { inputs: &inputs, output: output.desc(), axis };
        backend.execute(op, Command::Concat(&desc))
    })
}

fn pad(op: &'static str, desc: &PadDesc<'_>) -> Call {
    let PadDesc { input, output, before, value } = *desc;
    let ([input, output], before) = ([input, output].map(OwnedTensor::from), before.to_vec());
    Box::new(move |backend| {
        let (input, output) = (input.desc(), output.desc());
        backend.execute(op, Command::Pad(&PadDesc { input, output, before: &before, value }))
    })
}

fn repeat(op: &'static str, desc: &RepeatDesc<'_>) -> Call {
    let RepeatDesc { input, output, interleaved } = *desc;
    let [input, output] = [input, output].map(OwnedTensor::from);
    Box::new(move |backend| {
        let desc = RepeatDesc { input: input.desc(), output: output.desc(), interleaved };
        backend.execute(op, Command::Repeat(&desc))
    })
}

fn reduce(op: &'static str, desc: &ReduceDesc<'_>) -> Call {
    let ReduceDesc { op: function, input, axes, output, output_dtype, output_strides } = *desc;
    let (input, axes) = (OwnedTensor::from(input), axes.to_vec());
    let strides = output_strides.map(<[usize]>::to_vec);
    Box::new(move |backend| {
        let (input, output_strides) = (input.desc(), strides.as_deref());
        let desc = ReduceDesc { op: function, input, axes: &axes, output, output_dtype, output_strides };
        backend.execute(op, Command::Reduce(&desc))
    })
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
