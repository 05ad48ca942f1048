//! Numbers of 8 bits that stand for others, in steps from a zero point on.

use backend_api::{Activation, BackendTranspose, BinaryOp, CompareOp, ReduceOp, UnaryOp};

use super::call::Call;
use super::matrix::{Epilogue, product};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("QuantizeLinear", Kinds::Float, quantize).of_bytes().with_check(to_bytes),
    Operator::new("DequantizeLinear", Kinds::Any, dequantize).of_bytes().with_check(to_floats),
    Operator::new("DynamicQuantizeLinear", Kinds::Float, quantize_in_range).of_bytes(),
    Operator::new("MatMulInteger", Kinds::Any, integer_product).of_bytes().with_check(exact),
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

/// x / scale, rounded, + zero: the nearest byte.
fn bytes(call: &Call<'_>, x: &Tensor, scale: &Tensor, zero: Option<&Tensor>, to: Kind) -> Result<Tensor> {
    let d = call.device();
    let steps = d.binary(BinaryOp::Div, &d.convert(x, Kind::F32)?, scale)?;
    let mut y = d.unary(UnaryOp::Round, &steps)?;
    if let Some(zero) = zero {
        y = d.binary(BinaryOp::Add, &y, zero)?;
    }
    let [least, largest] = if to == Kind::I8 { [-128.0, 127.0] } else { [0.0, 255.0] };
    d.convert(&d.clamp(&y, least, largest)?, to)?.reshaped(x.shape.clone())
}

fn quantize(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (x, scale, zero) = (call.input(0)?, call.input(1)?, call.optional(2));
    let named = if call.node.int("output_dtype", 0) == I8 { Kind::I8 } else { Kind::Raw };
    let to = zero.map_or(named, |zero| zero.kind);
    let zero = zero.map(|zero| spread(call, x, zero)).transpose()?;
    Ok(vec![bytes(call, x, &spread(call, x, scale)?, zero.as_ref(), to)?])
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
    let y = bytes(call, x, &scale, Some(&zero), Kind::Raw)?;
    let (scale, zero) = (d.convert(&scale, x.kind)?, d.convert(&zero, Kind::Raw)?);
    Ok(vec![y, scale.reshaped(vec![])?, zero.reshaped(vec![])?])
}

/// As many products as may be added: of a difference of bytes, taken as 16 times one number and another one,
/// with another such difference, all sums are whole numbers that f32 has.
const MOST_PRODUCTS: usize = (1 << 24) / (16 * 255);

fn exact(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let extent = |i: usize, from_end: usize| {
        let shape = graph.input_type(node, i)?.shape.as_ref()?;
        *shape.get(shape.len().checked_sub(from_end)?)?
    };
    let inner = extent(0, 1).or_else(|| extent(1, 2));
    if !(graph.input_kind(node, 0).is_some_and(Kind::is_bytes)) {
        return Err("the element type".to_owned());
    }
    match inner {
        Some(0..=MOST_PRODUCTS) => Ok(()),
        _ => Err(format!("sums of more than {MOST_PRODUCTS} products")),
    }
}

/// The product of two matrices of bytes without their zero points, exact.
fn integer_product(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let d = call.device();
    let whole = |i: usize| -> Result<Tensor> {
        let x = d.convert(call.input(i)?, Kind::F32)?;
        let Some(zero) = call.optional(i + 2) else { return Ok(x) };
        let zero = d.convert(zero, Kind::F32)?;
        // A matrix on the left has zero points for its rows, one on the right for its columns.
        let zero = match (i, zero.rank()) {
            (0, 1) if zero.count() > 1 => zero.reshaped(vec![zero.count(), 1])?,
            _ if zero.count() == 1 => zero.reshaped(vec![1])?,
            _ => zero,
        };
        d.binary(BinaryOp::Sub, &x, &zero)
    };
    let (a, b) = (whole(0)?, whole(1)?);
    let high = d.unary(UnaryOp::Floor, &d.affine(&a, 1.0 / 16.0, 0.0)?)?;
    let low = d.binary(BinaryOp::Sub, &a, &d.affine(&high, 16.0, 0.0)?)?;
    let epilogue = Epilogue { alpha: 1.0, bias: None, activation: Activation::Identity };
    let times =
        |a: &Tensor| d.convert(&product(call, a, &b, [BackendTranspose::NoTrans; 2], epilogue)?, Kind::I32);
    let high = d.binary(BinaryOp::Mul, &times(&high)?, 16.0)?;
    Ok(vec![d.binary(BinaryOp::Add, &high, &times(&low)?)?])
}
