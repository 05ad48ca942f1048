//! Comparisons, truth values, choices and conversions.

use std::cmp::Ordering;

use backend_api::{BinaryOp, CompareOp, UnaryOp};

use super::call::Call;
use super::movement::copied;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::host::{self, Pairwise};
use crate::kind::Kind;
use crate::model::{Attribute, Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Equal", Kinds::Any, comparison),
    Operator::new("Less", Kinds::Number, comparison),
    Operator::new("LessOrEqual", Kinds::Number, comparison),
    Operator::new("Greater", Kinds::Number, comparison),
    Operator::new("GreaterOrEqual", Kinds::Number, comparison),
    Operator::new("And", Kinds::Truth, logical),
    Operator::new("Or", Kinds::Truth, logical),
    Operator::new("Xor", Kinds::Truth, logical),
    Operator::new("Not", Kinds::Truth, not),
    Operator::new("BitwiseAnd", Kinds::Number, bitwise),
    Operator::new("BitwiseOr", Kinds::Number, bitwise),
    Operator::new("BitwiseXor", Kinds::Number, bitwise),
    Operator::new("BitwiseNot", Kinds::Number, bitwise_not),
    Operator::new("BitShift", Kinds::Number, shift).with_check(of_u32),
    Operator::new("IsNaN", Kinds::Float, is_nan),
    Operator::new("IsInf", Kinds::Float, is_inf),
    Operator::new("Where", Kinds::Truth, choice),
    Operator::new("Cast", Kinds::Any, cast).with_check(casts_to_known),
    Operator::new("CastLike", Kinds::Any, cast),
];

fn comparison(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (op, holds): (_, fn(Ordering) -> bool) = match call.node.operator.as_str() {
        "Equal" => (CompareOp::Eq, Ordering::is_eq),
        "Less" => (CompareOp::Lt, Ordering::is_lt),
        "LessOrEqual" => (CompareOp::Le, Ordering::is_le),
        "Greater" => (CompareOp::Gt, Ordering::is_gt),
        "GreaterOrEqual" => (CompareOp::Ge, Ordering::is_ge),
        other => return Err(Error::invalid(format!("{other} is no comparison"))),
    };
    let (a, b) = (call.input(0)?, call.input(1)?);
    Ok(vec![if call.is_for_host() {
        host::compare(holds, a, b)?
    } else {
        call.device().compare(op, a, b)?
    }])
}

fn logical(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let host = |int| host::binary(&Pairwise { int, float: |_, _| f64::NAN }, a, b, Kind::Bool);
    Ok(vec![match (call.node.operator.as_str(), call.is_for_host()) {
        ("And", true) => host(|a, b| Some(a & b))?,
        ("Or", true) => host(|a, b| Some(a | b))?,
        (_, true) => host(|a, b| Some(a ^ b))?,
        ("And", false) => call.device().binary(BinaryOp::Min, a, b)?,
        ("Or", false) => call.device().binary(BinaryOp::Max, a, b)?,
        (_, false) => call.device().compare(CompareOp::Ne, a, b)?,
    }])
}

fn not(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    Ok(vec![if call.is_for_host() {
        host::map(x, |x| 1 - x, |x| x)?
    } else {
        call.device().compare(CompareOp::Eq, x, 0.0)?
    }])
}

/// A function of the bits of two integers.
fn bitwise(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (op, int): (_, fn(i64, i64) -> Option<i64>) = match call.node.operator.as_str() {
        "BitwiseAnd" => (BinaryOp::BitAnd, |a, b| Some(a & b)),
        "BitwiseOr" => (BinaryOp::BitOr, |a, b| Some(a | b)),
        _ => (BinaryOp::BitXor, |a, b| Some(a ^ b)),
    };
    on_bits(call, op, int)
}

fn on_bits(call: &Call<'_>, op: BinaryOp, int: fn(i64, i64) -> Option<i64>) -> Result<Vec<Tensor>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    Ok(vec![if call.is_for_host() {
        host::binary(&Pairwise { int, float: |_, _| f64::NAN }, a, b, a.kind)?
    } else {
        call.device().binary(op, a, b)?
    }])
}

fn bitwise_not(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    Ok(vec![if call.is_for_host() {
        host::map(x, |x| !x, |_| f64::NAN)?
    } else {
        call.device().unary(UnaryOp::BitNot, x)?
    }])
}

/// Shifts are of unsigned numbers, of which the device has those of 32 bits.
fn of_u32(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    match (graph.input_kind(node, 0), node.text("direction")) {
        (Some(Kind::U32), "LEFT" | "RIGHT") => Ok(()),
        _ => Err("a shift of other than 32 bits".to_owned()),
    }
}

/// Every bit is lost where a number is shifted by as many as it has.
fn shift(call: &Call<'_>) -> Result<Vec<Tensor>> {
    if call.node.text("direction") == "LEFT" {
        on_bits(call, BinaryOp::Shl, |a, b| Some(if b < 32 { a << b } else { 0 }))
    } else {
        on_bits(call, BinaryOp::Shr, |a, b| Some(if b < 32 { a >> b } else { 0 }))
    }
}

fn is_nan(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    Ok(vec![call.device().compare(CompareOp::Ne, x, x)?])
}

fn is_inf(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let wanted = |name| call.node.int(name, 1) == 1;
    Ok(vec![match (wanted("detect_negative"), wanted("detect_positive")) {
        (true, true) => d.compare(CompareOp::Eq, &d.unary(UnaryOp::Abs, x)?, f64::INFINITY)?,
        (true, false) => d.compare(CompareOp::Eq, x, f64::NEG_INFINITY)?,
        (false, true) => d.compare(CompareOp::Eq, x, f64::INFINITY)?,
        (false, false) => d.compare(CompareOp::Lt, x, x)?,
    }])
}

fn choice(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (condition, a, b) = (call.input(0)?, call.input(1)?, call.input(2)?);
    Ok(vec![if call.is_for_host() {
        host::choose(condition, a, b)?
    } else {
        call.device().choose(condition, a, b)?
    }])
}

/// The kind that a node converts to.
fn target(node: &Node) -> Option<Kind> {
    match node.attributes.get("to") {
        Some(&Attribute::Int(code)) => Kind::from_onnx(i32::try_from(code).ok()?),
        _ => None,
    }
}

fn casts_to_known(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    target(node).map(|_| ()).ok_or_else(|| "the element type that it converts to".to_owned())
}

fn cast(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let like = call.optional(1).map(|like| like.kind);
    let to = target(call.node).or(like).ok_or_else(|| Error::invalid("no element type to convert to"))?;
    // 64 bits are the host's, in either direction, unless they are indices of the device's making.
    let wide = to == Kind::I64 || (x.kind == Kind::I64 && x.is_on_host());
    if x.kind == to {
        return Ok(vec![x.clone()]);
    }
    if wide || (x.is_on_host() && call.is_for_host()) {
        let numbers = x.numbers()?.clone().convert(to);
        return Ok(vec![Tensor::host(to, x.shape.clone(), numbers)?]);
    }
    if to == Kind::Bool {
        return Ok(vec![d.compare(CompareOp::Ne, x, 0.0)?]);
    }
    // ONNX keeps the bits where the device clamps.
    if matches!((x.kind, to), (Kind::I32, Kind::U32) | (Kind::U32, Kind::I32)) {
        return Ok(vec![copied(call, x)?.with_kind(to)?]);
    }
    Ok(vec![d.convert(x, to)?])
}
