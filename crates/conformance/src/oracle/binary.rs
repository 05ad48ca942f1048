//! Functions of two numbers.

use backend_api::desc::{BinaryDesc, CompareDesc, Value};
use backend_api::{BackendResult, BinaryOp, CompareOp, DType, UnaryOp};

use super::expected::{Bytes, Expected, places_of};
use super::unary::{self, exp_error};
use crate::float::{MIN_NORMAL_F32, ROUNDING, is_subnormal, round_to, ulp_f32};
use crate::want::Want;

/// `op(a, b)` for numbers of `dtype`; a subnormal one may count as zero.
pub(crate) fn binary(op: BinaryOp, a: f64, b: f64, dtype: DType) -> Want {
    let zero = |x: f64| is_subnormal(dtype, x).then(|| 0f64.copysign(x));
    let (a_zero, b_zero) = (zero(a), zero(b));
    let pairs = [(a_zero, Some(b)), (Some(a), b_zero), (a_zero, b_zero)];
    let flushed = pairs.into_iter().filter_map(|(a, b)| Some(function(op, a?, b?)));
    let later = flushed_later(op, a, b, [a_zero, b_zero]);
    function(op, a, b).or(flushed.chain(later))
}

/// What comes of a subnormal number that counts as zero only once it is calculated with, after the branches
/// that its bits have decided.
fn flushed_later(op: BinaryOp, a: f64, b: f64, [a_zero, b_zero]: [Option<f64>; 2]) -> Option<Want> {
    match op {
        BinaryOp::Prelu if a < 0.0 && (a_zero.is_some() || b_zero.is_some()) => {
            Some(function(BinaryOp::Mul, a_zero.unwrap_or(a), b_zero.unwrap_or(b)))
        }
        BinaryOp::Mod if is_subnormal(DType::F32, a % b) => Some(Want::number(b)),
        _ => None,
    }
}

fn function(op: BinaryOp, a: f64, b: f64) -> Want {
    let within_ulps = |value: f64, ulps: f64| Want::near(value, ulps * ulp_f32(value));
    match op {
        BinaryOp::Pow => pow(a, b),
        BinaryOp::Prelu if a >= 0.0 => Want::number(a),
        _ if a.is_nan() || b.is_nan() => Want::Exact(f64::NAN),
        BinaryOp::Add => within_ulps(a + b, 1.0),
        BinaryOp::Sub => within_ulps(a - b, 1.0),
        BinaryOp::Mul => within_ulps(a * b, 1.0),
        BinaryOp::Div => within_ulps(a / b, 2.5),
        BinaryOp::Max => Want::number(a.max(b)),
        BinaryOp::Min => Want::number(a.min(b)),
        BinaryOp::Swiglu => gated(unary::function(UnaryOp::Silu, a), b),
        BinaryOp::Geglu => gated(unary::function(UnaryOp::Gelu, a), b),
        BinaryOp::GegluTanh => gated(unary::function(UnaryOp::GeluTanh, a), b),
        BinaryOp::SwigluOai => {
            let factor = oai_factor(b);
            let opened = gated(oai_gate(a), factor);
            let rounding = ROUNDING * opened.bounded().map_or(0.0, |(value, _)| value.abs());
            opened.widened(rounding)
        }
        BinaryOp::Prelu => within_ulps(a * b, 1.0),
        // The remainder of two f32 is an f32.
        BinaryOp::Rem => Want::number(a % b),
        BinaryOp::Mod => {
            let rest = a % b;
            let value = if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest };
            within_ulps(value, if value == rest { 0.0 } else { 1.0 })
        }
        other => unimplemented!("an oracle of {}", other.name()),
    }
}

/// The gate of gpt-oss's unit: g · sigmoid(1.702 · g) with g = min(a, 7), where 1.702 is an f32.
pub(super) fn oai_gate(a: f64) -> Want {
    unary::with_parameters(UnaryOp::Swish, [f64::from(1.702_f32), 0.0], a.min(7.0))
}

/// What gpt-oss's unit multiplies its gate by; the sum is rounded.
pub(super) fn oai_factor(b: f64) -> f64 {
    b.clamp(-7.0, 7.0) + 1.0
}

/// The product of a gate and b: the gate's error times b, and a rounding. A gate that may be flushed to zero
/// gives no number with an infinite b.
fn gated(gate: Want, b: f64) -> Want {
    let Want::Near { value, bound, flush_below } = gate else { return gate };
    let product = value * b;
    let slack = bound * b.abs() + ROUNDING * product.abs();
    let want = Want::Near {
        value: product,
        bound: if product.is_finite() { slack } else { 0.0 },
        flush_below: flush_below.max(MIN_NORMAL_F32) * b.abs().max(1.0),
    };
    let may_be_zero = value.abs() - bound < flush_below.max(MIN_NORMAL_F32);
    want.or((b.is_infinite() && may_be_zero).then_some(Want::Exact(f64::NAN)))
}

/// Whether a comparison holds, by IEEE 754.
pub(crate) fn holds(op: CompareOp, a: f64, b: f64) -> bool {
    match op {
        CompareOp::Eq => a == b,
        CompareOp::Ne => a != b,
        CompareOp::Lt => a < b,
        CompareOp::Le => a <= b,
        CompareOp::Gt => a > b,
        CompareOp::Ge => a >= b,
        other => unimplemented!("an oracle of {}", other.name()),
    }
}

/// exp2(b·log2|a|): the error of the logarithm (3 units, or 2⁻²¹ where it is small) and of the product moves
/// the result by ln 2 times as much, to which comes the error of exp2.
fn pow(a: f64, b: f64) -> Want {
    let value = libm::pow(a, b);
    if a.abs() == 1.0 || b == 0.0 || !a.is_finite() || !b.is_finite() || a == 0.0 || value.is_nan() {
        return Want::number(value);
    }
    let log = a.abs().log2();
    let near_one = if (0.5..=2.0).contains(&a.abs()) { 2f64.powi(-21) } else { 0.0 };
    let exponent = b * log;
    let exponent_error = b.abs() * (3.0 * ulp_f32(log)).max(near_one) + ROUNDING * exponent.abs();
    let relative = (std::f64::consts::LN_2 * exponent_error).exp_m1() + exp_error(exponent);
    let bound = value.abs() * relative;
    Want::near(value, if bound.is_finite() { bound } else { 0.0 })
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

pub(super) fn expect_binary(
    op: &'static str,
    desc: &BinaryDesc<'_>,
    memory: &Bytes,
) -> BackendResult<Expected> {
    let (output, dtype) = (desc.output, desc.output.dtype);
    if !dtype.is_float() {
        return Ok(Expected::exact(output.ptr, dtype));
    }
    let [a, b] = [desc.a, desc.b].map(|value| Input::new(value, memory));
    let want = |from_a, from_b| binary(desc.op, a.at(from_a), b.at(from_b), dtype);
    let places = places_of(&desc.operands(op)?.1).into_iter();
    let wants = places.map(|[from_a, from_b, to]| (output.offset + to, want(from_a, from_b))).collect();
    Ok(Expected::computed(output.ptr, dtype, wants))
}

/// Beside a subnormal number, which may be taken for zero, either answer is right.
pub(super) fn expect_compare(
    op: &'static str,
    desc: &CompareDesc<'_>,
    memory: &Bytes,
) -> BackendResult<Expected> {
    let (output, dtype) = (desc.output, desc.dtype());
    if !dtype.is_float() {
        return Ok(Expected::exact(output.ptr, output.dtype));
    }
    let [a, b] = [desc.a, desc.b].map(|value| Input::new(value, memory));
    let want = |a: f64, b: f64| {
        let holds = f64::from(u8::from(holds(desc.op, a, b)));
        let is_open = is_subnormal(dtype, a) || is_subnormal(dtype, b);
        Want::number(holds).or(is_open.then_some(Want::number(1.0 - holds)))
    };
    let places = places_of(&desc.operands(op)?.1).into_iter();
    let wants =
        places.map(|[from_a, from_b, to]| (output.offset + to, want(a.at(from_a), b.at(from_b)))).collect();
    Ok(Expected::computed(output.ptr, output.dtype, wants))
}
