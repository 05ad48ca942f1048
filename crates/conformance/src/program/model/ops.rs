//! Element-wise operations and movements.

use backend_api::desc::{
    AffineDesc, BinaryDesc, ClampDesc, CompareDesc, ConcatDesc, CopyDesc, PadDesc, PermuteDesc, SliceDesc,
    TensorDesc, UnaryDesc, Value, WhereDesc,
};
use backend_api::support::{Access, Operand};
use backend_api::{BackendResult, BinaryOp, DType, UnaryOp};

use super::element::{Element, range};
use super::memory::Memory;
use crate::oracle::binary::holds;

/// Where the elements lie, in elements after the handle's start, in row-major order. The operands were
/// checked, so there are no more than memory holds.
fn places(shape: &[usize], strides: &[usize]) -> Vec<usize> {
    if shape.contains(&0) {
        return Vec::new();
    }
    shape.iter().zip(strides).fold(vec![0], |places, (&extent, &stride)| {
        places.iter().flat_map(|place| (0..extent).map(move |i| place + i * stride)).collect()
    })
}

fn strides(tensor: &TensorDesc<'_>) -> Vec<usize> {
    if let Some(strides) = tensor.strides {
        return strides.to_vec();
    }
    let mut strides = vec![1; tensor.shape.len()];
    for k in (1..strides.len()).rev() {
        strides[k - 1] = tensor.shape[k].saturating_mul(strides[k]);
    }
    strides
}

fn all_places(tensor: &TensorDesc<'_>) -> Vec<usize> {
    places(tensor.shape, &strides(tensor))
}

fn load(memory: &Memory, tensor: &TensorDesc<'_>) -> Vec<Element> {
    all_places(tensor).into_iter().map(|i| memory.get(tensor.ptr, tensor.dtype, i)).collect()
}

fn store(memory: &mut Memory, tensor: &TensorDesc<'_>, elements: impl IntoIterator<Item = Element>) {
    for (place, element) in all_places(tensor).into_iter().zip(elements) {
        memory.set(tensor.ptr, tensor.dtype, place, element);
    }
}

/// The elements of an input, repeated as often as the output's shape asks for.
fn broadcast(memory: &Memory, input: &Value<'_>, output: &TensorDesc<'_>) -> Vec<Element> {
    match input {
        Value::Scalar(number) => {
            let element = Element::of(output.dtype, Some(*number as i64));
            vec![element; all_places(output).len()]
        }
        Value::Tensor(tensor) => {
            let missing = output.shape.len() - tensor.shape.len();
            let own = strides(tensor);
            let seen: Vec<usize> = (0..output.shape.len())
                .map(|k| match k.checked_sub(missing) {
                    Some(k) if tensor.shape[k] != 1 => own[k],
                    _ => 0,
                })
                .collect();
            let places = places(output.shape, &seen);
            places.into_iter().map(|i| memory.get(tensor.ptr, tensor.dtype, i)).collect()
        }
    }
}

/// `output[i] = f(input[i])` over numbers.
fn map(
    memory: &mut Memory,
    input: &TensorDesc<'_>,
    output: &TensorDesc<'_>,
    f: impl Fn(i64) -> Option<i64>,
) -> BackendResult<()> {
    let numbers = load(memory, input).into_iter().map(|element| element.number(input.dtype).and_then(&f));
    store(memory, output, numbers.map(|number| Element::of(output.dtype, number)));
    Ok(())
}

pub(super) fn fill(memory: &mut Memory, dst: u64, dtype: DType, n: usize, value: f64) -> BackendResult<()> {
    memory.check("fill", &[Operand::new("fill", "dst", dst, dtype, n, Access::Write)?])?;
    let (least, most) = range(dtype);
    let number = (value as i64).clamp(least, most);
    for i in 0..n {
        memory.set(dst, dtype, i, Element::of(dtype, Some(number)));
    }
    Ok(())
}

pub(super) fn unary(memory: &mut Memory, desc: &UnaryDesc<'_>) -> BackendResult<()> {
    memory.check("unary_ext", &desc.operands("unary_ext")?.0)?;
    map(memory, &desc.input, &desc.output, |x| match desc.op {
        UnaryOp::Relu => Some(x.max(0)),
        UnaryOp::Abs => Some(x.abs()),
        UnaryOp::Neg => Some(-x),
        UnaryOp::Square => Some(x.wrapping_mul(x)),
        UnaryOp::Sign => Some(x.signum()),
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round | UnaryOp::Trunc => Some(x),
        // With the parameters that are given where a program gives none: above 1, and beyond a half.
        UnaryOp::ThresholdedRelu => Some(if x > 1 { x } else { 0 }),
        UnaryOp::Shrink => Some(x),
        UnaryOp::BitNot => Some(!x),
        _ => None,
    })
}

pub(super) fn binary(memory: &mut Memory, desc: &BinaryDesc<'_>) -> BackendResult<()> {
    memory.check("binary_ext", &desc.operands("binary_ext")?.0)?;
    let dtype = desc.output.dtype;
    let [a, b] = [&desc.a, &desc.b].map(|input| broadcast(memory, input, &desc.output));
    let numbers = a.into_iter().zip(b).map(|(a, b)| {
        let (a, b) = (a.number(dtype)?, b.number(dtype)?);
        match desc.op {
            BinaryOp::Add => Some(a + b),
            BinaryOp::Sub => Some(a - b),
            BinaryOp::Mul => Some(a.wrapping_mul(b)),
            BinaryOp::Max => Some(a.max(b)),
            BinaryOp::Min => Some(a.min(b)),
            BinaryOp::Div if !dtype.is_float() => Some(a.checked_div(b).unwrap_or(0)),
            BinaryOp::Rem if !dtype.is_float() || b != 0 => Some(a.checked_rem(b).unwrap_or(0)),
            BinaryOp::Mod if !dtype.is_float() || b != 0 => Some(floor_mod(a, b)),
            BinaryOp::Prelu if dtype.is_float() => Some(if a >= 0 { a } else { a.wrapping_mul(b) }),
            BinaryOp::BitAnd => Some(a & b),
            BinaryOp::BitOr => Some(a | b),
            BinaryOp::BitXor => Some(a ^ b),
            BinaryOp::Shl => Some(if (0..32).contains(&b) { a << b } else { 0 }),
            BinaryOp::Shr => Some(a >> if (0..32).contains(&b) { b } else { 63 }),
            _ => None,
        }
    });
    store(memory, &desc.output, numbers.map(|number| Element::of(dtype, number)).collect::<Vec<_>>());
    Ok(())
}

/// The remainder with the sign of the divisor; 0 by 0.
fn floor_mod(a: i64, b: i64) -> i64 {
    let rest = a.checked_rem(b).unwrap_or(0);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

pub(super) fn compare(memory: &mut Memory, desc: &CompareDesc<'_>) -> BackendResult<()> {
    memory.check("compare", &desc.operands("compare")?.0)?;
    let dtype = desc.dtype();
    let [a, b] = [&desc.a, &desc.b].map(|input| broadcast(memory, input, &desc.output));
    let numbers = a.into_iter().zip(b).map(|(a, b)| {
        let (a, b) = (a.number(dtype)?, b.number(dtype)?);
        Some(i64::from(holds(desc.op, a as f64, b as f64)))
    });
    store(memory, &desc.output, numbers.map(|number| Element::of(DType::U32, number)).collect::<Vec<_>>());
    Ok(())
}

pub(super) fn where_cond(memory: &mut Memory, desc: &WhereDesc<'_>) -> BackendResult<()> {
    memory.check("where_cond", &desc.operands("where_cond")?.0)?;
    let condition = broadcast(memory, &desc.condition.into(), &desc.output);
    let [a, b] = [&desc.a, &desc.b].map(|input| broadcast(memory, input, &desc.output));
    let chosen = condition.into_iter().zip(a.into_iter().zip(b)).map(|(condition, (a, b))| {
        match condition.number(DType::U32) {
            Some(0) => b,
            Some(_) => a,
            None => Element::UNKNOWN,
        }
    });
    store(memory, &desc.output, chosen.collect::<Vec<_>>());
    Ok(())
}

pub(super) fn clamp(memory: &mut Memory, desc: &ClampDesc<'_>) -> BackendResult<()> {
    memory.check("clamp", &desc.operands("clamp")?.0)?;
    let (least, most) = range(desc.input.dtype);
    let [min, max] = [desc.min, desc.max].map(|bound| (bound as i64).clamp(least, most));
    map(memory, &desc.input, &desc.output, |x| Some(x.max(min).min(max)))
}

pub(super) fn affine(memory: &mut Memory, desc: &AffineDesc<'_>) -> BackendResult<()> {
    memory.check("affine", &desc.operands("affine")?.0)?;
    let (scale, bias) = (desc.scale as i64, desc.bias as i64);
    let exact = |x: i64| Element::of(DType::F32, Some(x)).number(DType::F32);
    map(memory, &desc.input, &desc.output, |x| exact(scale.checked_mul(x)?).map(|product| product + bias))
}

/// `dst = src` over elements in order, converted.
fn convert(memory: &mut Memory, elements: Vec<Element>, from: DType, dst: &TensorDesc<'_>) {
    let to = dst.dtype;
    let (least, most) = range(to);
    let converted = elements.into_iter().map(|element| match element.number(from) {
        _ if from == to => element,
        // What one integer type has and the other hasn't is left open.
        Some(x) if !from.is_float() && !to.is_float() && !(least..=most).contains(&x) => Element::UNKNOWN,
        Some(x) if to.is_float() => Element::of(to, Some(x)),
        Some(x) => Element::of(to, Some(x.clamp(least, most))),
        None => Element::UNKNOWN,
    });
    store(memory, dst, converted.collect::<Vec<_>>());
}

pub(super) fn copy(memory: &mut Memory, desc: &CopyDesc<'_>) -> BackendResult<()> {
    memory.check("copy", &desc.operands("copy")?.0)?;
    let elements = load(memory, &desc.src);
    convert(memory, elements, desc.src.dtype, &desc.dst);
    Ok(())
}

pub(super) fn permute(memory: &mut Memory, desc: &PermuteDesc<'_>) -> BackendResult<()> {
    memory.check("permute", &desc.operands("permute")?.0)?;
    let own = strides(&desc.input);
    let seen: Vec<usize> = desc.axes.iter().map(|&axis| own[axis]).collect();
    let (ptr, dtype) = (desc.input.ptr, desc.input.dtype);
    let elements = places(desc.output.shape, &seen).into_iter().map(|i| memory.get(ptr, dtype, i)).collect();
    convert(memory, elements, dtype, &desc.output);
    Ok(())
}

pub(super) fn slice(memory: &mut Memory, desc: &SliceDesc<'_>) -> BackendResult<()> {
    memory.check("slice", &desc.operands("slice")?.0)?;
    let own = strides(&desc.input);
    let step = |k: usize| desc.steps.map_or(1, |steps| steps[k]);
    let seen: Vec<usize> = own.iter().enumerate().map(|(k, stride)| stride * step(k)).collect();
    let start: usize = own.iter().zip(desc.starts).map(|(stride, start)| stride * start).sum();
    let (ptr, dtype) = (desc.input.ptr, desc.input.dtype);
    let places = places(desc.output.shape, &seen);
    let elements = places.into_iter().map(|i| memory.get(ptr, dtype, start + i)).collect();
    convert(memory, elements, dtype, &desc.output);
    Ok(())
}

pub(super) fn concat(memory: &mut Memory, desc: &ConcatDesc<'_>) -> BackendResult<()> {
    for (operands, _) in desc.operands("concat")? {
        memory.check("concat", &operands)?;
    }
    let mut start = 0;
    for input in desc.inputs {
        let elements = load(memory, input);
        put(memory, elements, input, &desc.output, (desc.axis, start));
        start += input.shape[desc.axis];
    }
    Ok(())
}

pub(super) fn pad(memory: &mut Memory, desc: &PadDesc<'_>) -> BackendResult<()> {
    memory.check("pad", &desc.operands("pad")?.0)?;
    let (least, most) = range(desc.output.dtype);
    let value = Element::of(desc.output.dtype, Some((desc.value as i64).clamp(least, most)));
    let elements = load(memory, &desc.input);
    let whole = all_places(&desc.output).len();
    store(memory, &desc.output, vec![value; whole]);
    put(memory, elements, &desc.input, &desc.output, (0, desc.before[0]));
    Ok(())
}

/// Puts the elements of `input` into `output` from `start` along an axis on. Programs pad and join along one
/// axis only.
fn put(
    memory: &mut Memory,
    elements: Vec<Element>,
    input: &TensorDesc<'_>,
    output: &TensorDesc<'_>,
    (axis, start): (usize, usize),
) {
    let own = strides(output);
    let shift = own[axis] * start;
    for (place, element) in places(input.shape, &own).into_iter().zip(elements) {
        memory.set(output.ptr, output.dtype, shift + place, element);
    }
}
