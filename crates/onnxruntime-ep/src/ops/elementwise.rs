//! Arithmetic: functions of one or two numbers, element by element.

use backend_api::{BinaryOp, UnaryOp};

use super::call::Call;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::host::{self, Pairwise};
use crate::kind::Kind;
use crate::model::Attribute;
use crate::numbers::Numbers;
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Add", Kinds::Number, binary).of_views(),
    Operator::new("Sub", Kinds::Number, binary).of_views(),
    Operator::new("Mul", Kinds::Number, binary).of_views(),
    Operator::new("Div", Kinds::Number, binary).of_views(),
    Operator::new("Max", Kinds::Number, fold),
    Operator::new("Min", Kinds::Number, fold),
    Operator::new("Sum", Kinds::Float, fold),
    Operator::new("Mean", Kinds::Float, fold),
    Operator::new("Pow", Kinds::Number, power),
    Operator::new("Mod", Kinds::Number, modulo),
    Operator::new("Abs", Kinds::Number, unary).of_views(),
    Operator::new("Ceil", Kinds::Float, unary).of_views(),
    Operator::new("Cos", Kinds::Float, unary).of_views(),
    Operator::new("Exp", Kinds::Float, unary).of_views(),
    Operator::new("Floor", Kinds::Float, unary).of_views(),
    Operator::new("Log", Kinds::Float, unary).of_views(),
    Operator::new("Neg", Kinds::Number, unary).of_views(),
    Operator::new("Reciprocal", Kinds::Float, unary).of_views(),
    Operator::new("Relu", Kinds::Number, unary).of_views(),
    Operator::new("Round", Kinds::Float, unary).of_views(),
    Operator::new("Sigmoid", Kinds::Float, unary).of_views(),
    Operator::new("Sign", Kinds::Number, unary).of_views(),
    Operator::new("Sin", Kinds::Float, unary).of_views(),
    Operator::new("Sqrt", Kinds::Float, unary).of_views(),
    Operator::new("Tanh", Kinds::Float, unary).of_views(),
    Operator::new("Clip", Kinds::Number, clip),
];

/// The function of the device and that of the host.
fn pairwise(operator: &str) -> Result<(BinaryOp, Pairwise)> {
    Ok(match operator {
        "Add" | "Sum" | "Mean" => {
            (BinaryOp::Add, Pairwise { int: |a, b| Some(a.wrapping_add(b)), float: |a, b| a + b })
        }
        "Sub" => (BinaryOp::Sub, Pairwise { int: |a, b| Some(a.wrapping_sub(b)), float: |a, b| a - b }),
        "Mul" => (BinaryOp::Mul, Pairwise { int: |a, b| Some(a.wrapping_mul(b)), float: |a, b| a * b }),
        "Div" => (BinaryOp::Div, Pairwise { int: i64::checked_div, float: |a, b| a / b }),
        "Max" => (BinaryOp::Max, Pairwise { int: |a, b| Some(a.max(b)), float: |a, b| extreme(a, b, a > b) }),
        "Min" => (BinaryOp::Min, Pairwise { int: |a, b| Some(a.min(b)), float: |a, b| extreme(a, b, a < b) }),
        "Pow" => (BinaryOp::Pow, Pairwise { int: whole_power, float: f64::powf }),
        other => return Err(Error::invalid(format!("{other} is no arithmetic"))),
    })
}

/// NaN wins.
fn extreme(a: f64, b: f64, a_wins: bool) -> f64 {
    if a.is_nan() || a_wins { a } else { b }
}

/// A power modulo 2⁶⁴, of which a negative exponent leaves the whole part; `None` for one of 0.
fn whole_power(base: i64, exponent: i64) -> Option<i64> {
    match (base, exponent) {
        (1, _) => Some(1),
        (-1, _) => Some(if exponent % 2 == 0 { 1 } else { -1 }),
        (0, ..0) => None,
        (_, ..0) => Some(0),
        _ => Some(base.wrapping_pow(u32::try_from(exponent).ok()?)),
    }
}

fn binary(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    Ok(vec![arithmetic(call, &call.node.operator, a, b)?])
}

fn arithmetic(call: &Call<'_>, operator: &str, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let (on_device, on_host) = pairwise(operator)?;
    if call.is_for_host() {
        host::binary(&on_host, a, b, a.kind)
    } else {
        call.device().binary(on_device, a, b)
    }
}

/// The function of all inputs one after the other, and for the mean divided by their number.
fn fold(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let mut inputs = call.all().into_iter();
    let mut folded = inputs.next().cloned().ok_or_else(|| Error::invalid("no input"))?;
    for input in inputs {
        folded = arithmetic(call, &call.node.operator, &folded, input)?;
    }
    if call.node.operator == "Mean" {
        folded = call.device().affine(&folded, 1.0 / call.all().len() as f64, 0.0)?;
    }
    Ok(vec![folded])
}

/// The base's kind is the result's. Powers of integers are the host's, however many: the device's are of f32,
/// which has no whole numbers of more than 24 bits. Squares and roots, of which normalisations are made, have
/// functions of their own.
fn power(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, base, exponent) = (call.device(), call.input(0)?, call.input(1)?);
    if !base.kind.is_float() || (base.is_on_host() && call.is_for_host()) {
        return Ok(vec![host::binary(&pairwise("Pow")?.1, base, exponent, base.kind)?]);
    }
    if exponent.is_on_host() && exponent.count() == 1 && exponent.rank() <= base.rank() {
        match exponent.numbers()?.floats().first() {
            Some(2.0) => return Ok(vec![d.unary(UnaryOp::Square, base)?]),
            Some(0.5) => return Ok(vec![d.unary(UnaryOp::Sqrt, base)?]),
            _ => {}
        }
    }
    let [a, b] = [d.convert(base, Kind::F32)?, d.convert(exponent, Kind::F32)?];
    Ok(vec![d.convert(&d.binary(BinaryOp::Pow, &a, &b)?, base.kind)?])
}

/// The remainder of a division towards zero with `fmod`, else of one towards −∞.
fn modulo(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let (on_device, on_host) = if call.node.int("fmod", 0) == 1 {
        (BinaryOp::Rem, Pairwise { int: truncated, float: |a, b| a % b })
    } else {
        (BinaryOp::Mod, Pairwise { int: floored, float: floored_fraction })
    };
    Ok(vec![if call.is_for_host() {
        host::binary(&on_host, a, b, a.kind)?
    } else {
        call.device().binary(on_device, a, b)?
    }])
}

fn truncated(a: i64, b: i64) -> Option<i64> {
    (b != 0).then(|| a.wrapping_rem(b))
}

fn floored(a: i64, b: i64) -> Option<i64> {
    let remainder = truncated(a, b)?;
    Some(if remainder != 0 && (remainder < 0) != (b < 0) { remainder + b } else { remainder })
}

fn floored_fraction(a: f64, b: f64) -> f64 {
    let remainder = a % b;
    if remainder != 0.0 && (remainder < 0.0) != (b < 0.0) { remainder + b } else { remainder }
}

/// A function of integers.
type Int = fn(i64) -> i64;

/// A function of floating-point numbers.
type Float = fn(f64) -> f64;

fn unary(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let (op, int, float): (UnaryOp, Int, Float) = match call.node.operator.as_str() {
        "Abs" => (UnaryOp::Abs, i64::wrapping_abs, f64::abs),
        "Ceil" => (UnaryOp::Ceil, |x| x, f64::ceil),
        "Cos" => (UnaryOp::Cos, |x| x, f64::cos),
        "Exp" => (UnaryOp::Exp, |x| x, f64::exp),
        "Floor" => (UnaryOp::Floor, |x| x, f64::floor),
        "Log" => (UnaryOp::Log, |x| x, f64::ln),
        "Neg" => (UnaryOp::Neg, i64::wrapping_neg, |x| -x),
        "Reciprocal" => (UnaryOp::Recip, |x| x, f64::recip),
        "Relu" => (UnaryOp::Relu, |x| x.max(0), |x| if x < 0.0 { 0.0 } else { x }),
        "Round" => (UnaryOp::Round, |x| x, f64::round_ties_even),
        "Sigmoid" => (UnaryOp::Sigmoid, |x| x, |x| 1.0 / (1.0 + (-x).exp())),
        "Sign" => (UnaryOp::Sign, i64::signum, |x| if x == 0.0 { x } else { x.signum() }),
        "Sin" => (UnaryOp::Sin, |x| x, f64::sin),
        "Sqrt" => (UnaryOp::Sqrt, |x| x, f64::sqrt),
        "Tanh" => (UnaryOp::Tanh, |x| x, f64::tanh),
        other => return Err(Error::invalid(format!("{other} is no function of one number"))),
    };
    // The device has no signs or magnitudes of u32, which are few and rare.
    Ok(vec![if call.is_for_host() || !op.accepts(x.kind.dtype()) {
        host::map(x, int, float)?
    } else {
        call.device().unary(op, x)?
    }])
}

/// Bounds are attributes before operator set 11 and inputs from then on; those that are left out don't bound.
fn clip(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    if call.is_for_host() {
        let mut y = x.clone();
        for (i, attribute, operator) in [(1, "min", "Max"), (2, "max", "Min")] {
            let bound = match (call.optional(i), call.node.attributes.get(attribute)) {
                (Some(bound), _) => bound.clone(),
                (None, Some(Attribute::Float(bound))) => {
                    Tensor::host(x.kind, vec![], Numbers::Float(vec![*bound]))?
                }
                _ => continue,
            };
            y = host::binary(&pairwise(operator)?.1, &y, &bound, x.kind)?;
        }
        return Ok(vec![y]);
    }
    let min = call.number(1)?.unwrap_or_else(|| call.node.float("min", f64::NEG_INFINITY));
    let max = call.number(2)?.unwrap_or_else(|| call.node.float("max", f64::INFINITY));
    Ok(vec![call.device().clamp(x, min, max)?])
}
