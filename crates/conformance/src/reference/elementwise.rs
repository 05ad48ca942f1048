//! Functions of each element.

use backend_api::desc::{AffineDesc, BinaryDesc, ClampDesc, CompareDesc, UnaryDesc, Value};
use backend_api::{BackendResult, DType};

use super::{Bytes, Expected, walk};
use crate::float::{is_subnormal, round_to};
use crate::oracle;
use crate::oracle::convert::convert;
use crate::want::Want;

pub(super) fn unary(op: &'static str, desc: &UnaryDesc<'_>, memory: &Bytes) -> BackendResult<Expected> {
    let (input, output, dtype) = (desc.input, desc.output, desc.output.dtype);
    if !dtype.is_float() {
        return Ok(Expected::exact(output.ptr, dtype));
    }
    let x = memory.numbers(input.ptr, dtype);
    let want =
        |at: usize| oracle::unary::unary_with(desc.op, [desc.alpha, desc.beta], x[input.offset + at], dtype);
    let places = walk(&desc.operands(op)?.1).into_iter();
    let wants = places.map(|[from, to]| (output.offset + to, want(from))).collect();
    Ok(Expected::computed(output.ptr, dtype, wants))
}

/// A tensor's numbers by their place, or a number.
struct Input {
    numbers: Vec<f64>,
    offset: usize,
    scalar: Option<f64>,
}

impl Input {
    fn new(value: Value<'_>, memory: &Bytes) -> Self {
        match value {
            Value::Tensor(tensor) => {
                let numbers = memory.numbers(tensor.ptr, tensor.dtype);
                Self { numbers, offset: tensor.offset, scalar: None }
            }
            Value::Scalar(number) => Self { numbers: Vec::new(), offset: 0, scalar: Some(number) },
        }
    }

    /// The number at a place; a single one as f32 has it.
    fn at(&self, place: usize) -> f64 {
        match self.scalar {
            Some(number) => round_to(DType::F32, number),
            None => self.numbers[self.offset + place],
        }
    }
}

pub(super) fn binary(op: &'static str, desc: &BinaryDesc<'_>, memory: &Bytes) -> BackendResult<Expected> {
    let (output, dtype) = (desc.output, desc.output.dtype);
    if !dtype.is_float() {
        return Ok(Expected::exact(output.ptr, dtype));
    }
    let [a, b] = [desc.a, desc.b].map(|value| Input::new(value, memory));
    let want = |from_a, from_b| oracle::binary::binary(desc.op, a.at(from_a), b.at(from_b), dtype);
    let places = walk(&desc.operands(op)?.1).into_iter();
    let wants = places.map(|[from_a, from_b, to]| (output.offset + to, want(from_a, from_b))).collect();
    Ok(Expected::computed(output.ptr, dtype, wants))
}

/// Beside a subnormal number, which may be taken for zero, either answer is right.
pub(super) fn compare(op: &'static str, desc: &CompareDesc<'_>, memory: &Bytes) -> BackendResult<Expected> {
    let (output, dtype) = (desc.output, desc.dtype());
    if !dtype.is_float() {
        return Ok(Expected::exact(output.ptr, output.dtype));
    }
    let [a, b] = [desc.a, desc.b].map(|value| Input::new(value, memory));
    let want = |a: f64, b: f64| {
        let holds = f64::from(u8::from(oracle::binary::holds(desc.op, a, b)));
        let is_open = is_subnormal(dtype, a) || is_subnormal(dtype, b);
        Want::number(holds).or(is_open.then_some(Want::number(1.0 - holds)))
    };
    let places = walk(&desc.operands(op)?.1).into_iter();
    let wants =
        places.map(|[from_a, from_b, to]| (output.offset + to, want(a.at(from_a), b.at(from_b)))).collect();
    Ok(Expected::computed(output.ptr, output.dtype, wants))
}

pub(super) fn clamp(op: &'static str, desc: &ClampDesc<'_>, memory: &Bytes) -> BackendResult<Expected> {
    let (input, output, dtype) = (desc.input, desc.output, desc.output.dtype);
    if !dtype.is_float() {
        return Ok(Expected::exact(output.ptr, dtype));
    }
    let bounds = [desc.min, desc.max].map(|bound| convert(dtype, bound));
    let x = memory.numbers(input.ptr, dtype);
    let want = |at: usize| {
        let x = x[input.offset + at];
        let zero = is_subnormal(dtype, x).then(|| oracle::elementwise::clamp(0f64.copysign(x), bounds));
        oracle::elementwise::clamp(x, bounds).or(zero)
    };
    let places = walk(&desc.operands(op)?.1).into_iter();
    let wants = places.map(|[from, to]| (output.offset + to, want(from))).collect();
    Ok(Expected::computed(output.ptr, dtype, wants))
}

pub(super) fn affine(op: &'static str, desc: &AffineDesc<'_>, memory: &Bytes) -> BackendResult<Expected> {
    let (input, output, dtype) = (desc.input, desc.output, desc.output.dtype);
    let x = memory.numbers(input.ptr, dtype);
    // A subnormal input may be taken for zero.
    let want = |at: usize| {
        let x = x[input.offset + at];
        let factors = [desc.scale, desc.bias];
        let zero = is_subnormal(dtype, x).then(|| oracle::elementwise::affine(0.0, factors));
        oracle::elementwise::affine(x, factors).or(zero)
    };
    let places = walk(&desc.operands(op)?.1).into_iter();
    let wants = places.map(|[from, to]| (output.offset + to, want(from))).collect();
    Ok(Expected::computed(output.ptr, dtype, wants))
}
