//! Poolings of sequences, images and volumes, and what is made of them.

use backend_api::desc::{ImageShape, PoolDesc, PoolOp, PoolShape};
use backend_api::{BinaryOp, ReduceOp, UnaryOp};

use super::call::Call;
use super::shape::extent;
use super::window::{Slide, channels, is_of, list, shaped, slides, spatial, window};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("MaxPool", Kinds::Float, pooling).with_check(without_places),
    Operator::new("AveragePool", Kinds::Float, pooling).with_check(is_pooled),
    Operator::new("LpPool", Kinds::Float, norms).with_check(of_whole_windows),
    Operator::new("LRN", Kinds::Float, local_response),
    Operator::new("GlobalMaxPool", Kinds::Float, global),
    Operator::new("GlobalAveragePool", Kinds::Float, global),
    Operator::new("GlobalLpPool", Kinds::Float, global).with_check(of_few_powers),
];

fn is_pooled(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    is_of(&[1, 2, 3], graph, node)
}

fn without_places(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.has_output(1) {
        return Err("the places of the maxima".to_owned());
    }
    is_pooled(graph, node)
}

/// Windows that don't pass the padding's end, of which an average would count less.
fn of_whole_windows(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.int("ceil_mode", 0) == 1 {
        return Err("windows that pass the end".to_owned());
    }
    is_pooled(graph, node)
}

fn of_few_powers(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if matches!(node.int("p", 2), 1 | 2) { Ok(()) } else { Err("a power other than 1 and 2".to_owned()) }
}

fn pooling(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let op = match (call.node.operator.as_str(), call.node.int("count_include_pad", 0)) {
        ("MaxPool", _) => PoolOp::Max,
        (_, 0) => PoolOp::Average,
        _ => PoolOp::AverageWithPadding,
    };
    Ok(vec![pooled(call, op, call.input(0)?)?])
}

/// The maxima or averages of the windows that the attributes describe. Those of volumes are those of their
/// images first, then of the results one behind the other: a window has as many elements in each image.
fn pooled(call: &Call<'_>, op: PoolOp, x: &Tensor) -> Result<Tensor> {
    let from = spatial::<3>(x)?;
    let [deep, down, across] = slides(call, list(call, "kernel_shape", 1)?, from)?;
    let (batch, depth) = channels(x)?;
    let planes = if x.rank() == 5 { from[0] } else { 1 };
    let image = ImageShape { batch, channels: depth * planes, height: from[1], width: from[2] };
    let (images, [height, width]) = over_image(call, op, x, image, [down, across])?;
    if x.rank() != 5 {
        return images.reshaped(shaped(x, depth, [height, width]));
    }
    let image = ImageShape { batch, channels: depth, height: planes, width: height * width };
    let (volumes, [places, _]) = over_image(call, op, &images, image, [deep, Slide::STILL])?;
    volumes.reshaped(shaped(x, depth, [places, height, width]))
}

/// The maxima or averages of an image's windows, and how many there are in each direction.
fn over_image(
    call: &Call<'_>,
    op: PoolOp,
    x: &Tensor,
    image: ImageShape,
    [down, across]: [Slide; 2],
) -> Result<(Tensor, [usize; 2])> {
    let d = call.device();
    let ceil = call.node.int("ceil_mode", 0) == 1;
    // An average that counts the padding would count more of it.
    let (down, across) = match op {
        PoolOp::Max | PoolOp::Average if ceil => {
            (down.up_to_first_end(image.height), across.up_to_first_end(image.width))
        }
        _ => (down, across),
    };
    let to = [down.places(image.height, ceil)?, across.places(image.width, ceil)?];
    let y = d.empty(x.kind, &[image.batch, image.channels, to[0], to[1]])?;
    let of = PoolShape::new(image, to, window([down, across]));
    call.backend.pool2d(&PoolDesc::new(op, x.kind.dtype(), d.ptr(x)?, d.ptr(&y)?, of))?;
    Ok((y, to))
}

/// The p-th root of the sum of p-th powers, by their average.
fn norms(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let p = call.node.int("p", 2) as f64;
    let size: [usize; 3] = list(call, "kernel_shape", 1)?;
    let count = size.iter().product::<usize>() as f64;
    // Powers of f16 would overflow.
    let size = d.convert(&d.unary(UnaryOp::Abs, x)?, Kind::F32)?;
    let powers = match p {
        1.0 => size,
        2.0 => d.unary(UnaryOp::Square, &size)?,
        _ => d.binary(BinaryOp::Pow, &size, p)?,
    };
    let sums = d.affine(&pooled(call, PoolOp::AverageWithPadding, &powers)?, count, 0.0)?;
    let roots = match p {
        1.0 => sums,
        2.0 => d.unary(UnaryOp::Sqrt, &sums)?,
        _ => d.binary(BinaryOp::Pow, &sums, p.recip())?,
    };
    Ok(vec![d.convert(&roots, x.kind)?])
}

/// x / (bias + α · the mean square of neighbouring channels)^β.
fn local_response(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, node, x) = (call.device(), call.node, call.input(0)?);
    let (batch, depth) = channels(x)?;
    let size = extent(node.int("size", 1))?;
    let along = Slide::around_each(size).ok_or_else(|| Error::invalid("a window of no channels"))?;
    let width = x.shape.iter().skip(2).product();
    let image = ImageShape { batch, channels: 1, height: depth, width };
    let squares = d.unary(UnaryOp::Square, &d.convert(x, Kind::F32)?)?;
    let (means, _) = over_image(call, PoolOp::AverageWithPadding, &squares, image, [along, Slide::STILL])?;
    let sums = d.affine(&means, node.float("alpha", 1e-4), node.float("bias", 1.0))?;
    let factors = d.binary(BinaryOp::Pow, &sums, -node.float("beta", 0.75))?.reshaped(x.shape.clone())?;
    Ok(vec![d.binary(BinaryOp::Mul, x, &d.convert(&factors, x.kind)?)?])
}

/// A reduction of everything behind the channels.
fn global(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let axes: Vec<usize> = (2..x.rank()).collect();
    let op = match (call.node.operator.as_str(), call.node.int("p", 2)) {
        ("GlobalMaxPool", _) => ReduceOp::Max,
        ("GlobalAveragePool", _) => ReduceOp::Mean,
        (_, 1) => ReduceOp::NormL1,
        _ => ReduceOp::NormL2,
    };
    Ok(vec![call.device().reduce(op, x, &axes)?])
}
