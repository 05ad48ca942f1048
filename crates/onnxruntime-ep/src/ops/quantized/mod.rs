//! Numbers of 8 bits that stand for others, in steps from a zero point on.

mod product;

use backend_api::{BinaryOp, CompareOp, ReduceOp, UnaryOp};

use super::call::Call;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("QuantizeLinear", Kinds::Float, quantize).of_bytes().with_check(to_bytes),
    Operator::new("DequantizeLinear", Kinds::Any, dequantize).of_bytes().with_check(to_floats),
    Operator::new("DynamicQuantizeLinear", Kinds::Float, quantize_in_range).of_bytes(),
    Operator::new("MatMulInteger", Kinds::Any, product::integers).of_bytes().with_check(product::is_exact),
    Operator::new("ConvInteger", Kinds::Any, product::integers).of_bytes().with_check(product::is_exact),
    Operator::new("QLinearMatMul", Kinds::Any, product::bytes_of_bytes)
        .of_bytes()
        .with_check(product::is_of_bytes),
    Operator::new("QLinearConv", Kinds::Any, product::bytes_of_bytes)
        .of_bytes()
        .with_check(product::is_of_bytes),
];

/// The codes of element types in ONNX that an attribute names.
const F32: i64 = 1;
const F16: i64 = 10;
const I8: i64 = 3;

fn to_bytes(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let made = node.outputs.first().and_then(|name| graph.types.get(name)).and_then(|known| known.kind);
    let is_alike = node.input(2).is_none() || graph.input_kind(node, 2) == made;
    let is_float = graph.input_kind(node, 1).is_some_and(Kind::is_float);
    if made.is_some_and(Kind::is_bytes) && is_alike && is_float {
        Ok(())
    } else {
        Err("an element type other than that of bytes".to_owned())
    }
}

fn to_floats(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let (from, zero) = (graph.input_kind(node, 0), graph.input_kind(node, 2));
    let is_known = from.is_some_and(|kind| kind.is_bytes() || kind == Kind::I32);
    let is_alike = node.input(2).is_none() || zero == from;
    let to_float = matches!(node.int("output_dtype", 0), 0 | F32 | F16);
    if is_known && is_alike && to_float && graph.input_kind(node, 1).is_some_and(Kind::is_float) {
        Ok(())
    } else {
        Err("the element types".to_owned())
    }
}

/// A scale or a zero point in f32: one for all, one for each index of an axis, or one for each block along it.
fn spread(call: &Call<'_>, x: &Tensor, factor: &Tensor) -> Result<Tensor> {
    let (d, node) = (call.device(), call.node);
    let factor = d.convert(factor, Kind::F32)?;
    if factor.count() == 1 {
        return factor.reshaped(vec![1]);
    }
    let axis = call.axis(1, x.rank())?;
    let length = x.shape[axis];
    let block = super::shape::extent(node.int("block_size", 0))?;
    let wrong = || Error::invalid(format!("scales {:?} for {:?}", factor.shape, x.shape));
    if block > 0 {
        let places = (0..length).map(|i| (i / block) as i64).collect();
        let spread = d.select(&factor, axis, &Tensor::vector(places))?;
        return if spread.shape == x.shape { Ok(spread) } else { Err(wrong()) };
    }
    let mut shape = vec![1; x.rank()];
    shape[axis] = length;
    factor.reshaped(shape)
}

/// (x − zero) · scale, computed in f32.
fn dequantize(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x, scale) = (call.device(), call.input(0)?, call.input(1)?);
    let to = match call.node.int("output_dtype", 0) {
        F32 => Kind::F32,
        F16 => Kind::F16,
        _ => scale.kind,
    };
    let mut y = d.convert(x, Kind::F32)?;
    if let Some(zero) = call.optional(2) {
        y = d.binary(BinaryOp::Sub, &y, &spread(call, x, zero)?)?;
    }
    let y = d.binary(BinaryOp::Mul, &y, &spread(call, x, scale)?)?.reshaped(x.shape.clone())?;
    Ok(vec![d.convert(&y, to)?])
}

/// x / scale, in f32.
fn steps(call: &Call<'_>, x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let d = call.device();
    d.binary(BinaryOp::Div, &d.convert(x, Kind::F32)?, scale)?.reshaped(x.shape.clone())
}

/// The bytes nearest to numbers of steps from a zero point.
fn bytes(call: &Call<'_>, steps: &Tensor, zero: Option<&Tensor>, to: Kind) -> Result<Tensor> {
    let d = call.device();
    let mut y = d.unary(UnaryOp::Round, steps)?;
    if let Some(zero) = zero {
        y = d.binary(BinaryOp::Add, &y, zero)?;
    }
    let [least, largest] = if to == Kind::I8 { [-128.0, 127.0] } else { [0.0, 255.0] };
    d.convert(&d.clamp(&y, least, largest)?, to)?.reshaped(steps.shape.clone())
}

fn quantize(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (x, scale, zero) = (call.input(0)?, call.input(1)?, call.optional(2));
    let named = if call.node.int("output_dtype", 0) == I8 { Kind::I8 } else { Kind::Raw };
    let to = zero.map_or(named, |zero| zero.kind);
    let zero = zero.map(|zero| spread(call, x, zero)).transpose()?;
    let steps = steps(call, x, &spread(call, x, scale)?)?;
    Ok(vec![bytes(call, &steps, zero.as_ref(), to)?])
}

/// Bytes whose steps reach from the smallest number, or 0, to the largest; the step and which byte is 0.
fn quantize_in_range(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let wide = d.convert(x, Kind::F32)?;
    let axes: Vec<usize> = (0..x.rank()).collect();
    let end = |op| d.reduce(op, &wide, &axes)?.reshaped(vec![1]);
    let least = d.clamp(&end(ReduceOp::Min)?, f64::NEG_INFINITY, 0.0)?;
    let largest = d.clamp(&end(ReduceOp::Max)?, 0.0, f64::INFINITY)?;
    let range = d.binary(BinaryOp::Sub, &largest, &least)?;
    let scale = d.binary(BinaryOp::Div, &range, 255.0)?;
    let scale = d.choose(&d.compare(CompareOp::Eq, &scale, 0.0)?, 1.0, &scale)?;
    let start = d.unary(UnaryOp::Neg, &d.binary(BinaryOp::Div, &least, &scale)?)?;
    let zero = d.unary(UnaryOp::Round, &d.clamp(&start, 0.0, 255.0)?)?;
    let y = bytes(call, &steps(call, x, &scale)?, Some(&zero), Kind::Raw)?;
    let (scale, zero) = (d.convert(&scale, x.kind)?, d.convert(&zero, Kind::Raw)?);
    Ok(vec![y, scale.reshaped(vec![])?, zero.reshaped(vec![])?])
}
