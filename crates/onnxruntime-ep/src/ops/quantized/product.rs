//! Products and convolutions of bytes.

use backend_api::{Activation, BackendTranspose, BinaryOp, UnaryOp};

use super::bytes;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::ops::image::convolved;
use crate::ops::matrix::{Epilogue, product};
use crate::ops::{Call, window};
use crate::tensor::Tensor;

/// As many products of two differences of bytes as may be added so that every sum is a whole number that f32
/// has.
const FEW_PRODUCTS: usize = (1 << 24) / (255 * 255);

/// As many if one of the differences is taken as 16 times one number and another one.
const MOST_PRODUCTS: usize = (1 << 24) / (16 * 255);

/// How many products a sum has, if it is known.
fn products(graph: &Graph, node: &Node) -> Option<usize> {
    let shape = |i: usize| graph.input_type(node, i)?.shape.as_ref();
    if node.operator == "ConvInteger" {
        return shape(1)?.iter().skip(1).try_fold(1usize, |count, &extent| count.checked_mul(extent?));
    }
    let inner = |i: usize, from_end: usize| {
        let shape = shape(i)?;
        *shape.get(shape.len().checked_sub(from_end)?)?
    };
    inner(0, 1).or_else(|| inner(1, 2))
}

/// Matrices, or images and filters, of bytes.
pub(super) fn is_of_bytes(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let other = if node.operator.starts_with("QLinear") { 3 } else { 1 };
    if ![0, other].into_iter().all(|i| graph.input_kind(node, i).is_some_and(Kind::is_bytes)) {
        return Err("the element types".to_owned());
    }
    if node.operator.ends_with("MatMul") || node.operator == "MatMulInteger" {
        return Ok(());
    }
    window::is_of(&[1, 2, 3], graph, node)
}

pub(super) fn is_exact(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    is_of_bytes(graph, node)?;
    match products(graph, node) {
        Some(0..=MOST_PRODUCTS) => Ok(()),
        _ => Err(format!("sums of more than {MOST_PRODUCTS} products")),
    }
}

/// The differences of bytes from their zero points, in f32. A matrix on the left has zero points for its rows,
/// one on the right for its columns; filters have one each.
fn differences(call: &Call<'_>, i: usize, zero: usize) -> Result<Tensor> {
    let (d, given) = (call.device(), call.input(i)?);
    let x = d.convert(given, Kind::F32)?;
    let Some(zero) = call.optional(zero) else { return Ok(x) };
    let zero = d.convert(zero, Kind::F32)?;
    let is_filter = call.node.operator.contains("Conv") && i > 0;
    let zero = match zero.count() {
        1 => zero.reshaped(vec![1])?,
        count if is_filter => {
            let mut shape = vec![1; given.rank()];
            *shape.first_mut().ok_or_else(|| Error::invalid("a filter without dimensions"))? = count;
            zero.reshaped(shape)?
        }
        count if i == 0 && zero.rank() == 1 => zero.reshaped(vec![count, 1])?,
        _ => zero,
    };
    d.binary(BinaryOp::Sub, &x, &zero)
}

/// The sums of products of two tensors' differences, as i32: exact up to [`MOST_PRODUCTS`] products in a sum,
/// beyond as f32 rounds.
fn sums(call: &Call<'_>, a: &Tensor, b: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let d = call.device();
    let epilogue = Epilogue { alpha: 1.0, bias: None, activation: Activation::Identity };
    let is_convolution = call.node.operator.contains("Conv");
    let times = |a: &Tensor| {
        let sums = if is_convolution {
            convolved(call, a, b, None)?
        } else {
            product(call, a, b, [BackendTranspose::NoTrans; 2], epilogue)?
        };
        d.convert(&sums, Kind::I32)
    };
    let count =
        if is_convolution { b.shape.iter().skip(1).product() } else { a.shape.last().copied().unwrap_or(1) };
    let mut y = if count <= FEW_PRODUCTS {
        times(a)?
    } else {
        let high = d.unary(UnaryOp::Floor, &d.affine(a, 1.0 / 16.0, 0.0)?)?;
        let low = d.binary(BinaryOp::Sub, a, &d.affine(&high, 16.0, 0.0)?)?;
        d.binary(BinaryOp::Add, &d.binary(BinaryOp::Mul, &times(&high)?, 16.0)?, &times(&low)?)?
    };
    if let Some(bias) = bias {
        let shape = [&[bias.count()][..], &vec![1; y.rank().saturating_sub(2)]].concat();
        y = d.binary(BinaryOp::Add, &y, &bias.reshaped(shape)?)?;
    }
    Ok(y)
}

/// The product or the convolution of two tensors of bytes without their zero points.
pub(super) fn integers(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (a, b) = (differences(call, 0, 2)?, differences(call, 1, 3)?);
    Ok(vec![sums(call, &a, &b, None)?])
}

/// The product or the convolution of what bytes stand for, as bytes again.
pub(super) fn bytes_of_bytes(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let d = call.device();
    let (a, b) = (differences(call, 0, 2)?, differences(call, 3, 5)?);
    let sums = d.convert(&sums(call, &a, &b, call.optional(8))?, Kind::F32)?;
    let is_convolution = call.node.operator.contains("Conv");
    // Filters have a scale each, and so have the channels of their results.
    let spread = |i: usize| -> Result<Tensor> {
        let scale = d.convert(call.input(i)?, Kind::F32)?;
        match scale.count() {
            1 => scale.reshaped(vec![1]),
            count if is_convolution => {
                scale.reshaped([&[count][..], &vec![1; sums.rank().saturating_sub(2)]].concat())
            }
            count if i == 1 && scale.rank() == 1 => scale.reshaped(vec![count, 1]),
            _ => Ok(scale),
        }
    };
    let scale = d.binary(BinaryOp::Mul, &spread(1)?, &spread(4)?)?;
    let scale = d.binary(BinaryOp::Div, &scale, &spread(6)?)?;
    let zero = call.input(7)?;
    let steps = d.binary(BinaryOp::Mul, &sums, &scale)?.reshaped(sums.shape.clone())?;
    let zeros = match zero.count() {
        1 => d.convert(zero, Kind::F32)?.reshaped(vec![1])?,
        _ => return Err(Error::invalid("several zero points of a result")),
    };
    Ok(vec![bytes(call, &steps, Some(&zeros), zero.kind)?])
}
