//! Convolutions and poolings of one or two dimensions.

use backend_api::ReduceOp;
use backend_api::desc::{
    ConvDesc, ConvShape, ConvTransposeDesc, ImageShape, PoolDesc, PoolOp, PoolShape, Window,
};

use super::call::Call;
use super::matrix::activation;
use super::shape::extent;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Conv", Kinds::Float, convolution).with_check(is_image),
    Operator::new("ConvTranspose", Kinds::Float, transposed).with_check(is_image),
    Operator::new("MaxPool", Kinds::Float, pooling).with_check(without_places),
    Operator::new("AveragePool", Kinds::Float, pooling).with_check(is_image),
    Operator::new("GlobalMaxPool", Kinds::Float, global),
    Operator::new("GlobalAveragePool", Kinds::Float, global),
];

/// One or two dimensions beside batch and channels, and no padding that cuts.
fn is_image(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let rank = graph.input_rank(node, 0).or_else(|| match node.operator.as_str() {
        "Conv" | "ConvTranspose" => graph.input_rank(node, 1),
        _ => node.ints("kernel_shape").map(|sizes| sizes.len() + 2),
    });
    if !matches!(rank, Some(3 | 4)) {
        return Err("neither one nor two dimensions".to_owned());
    }
    if node.ints("pads").is_some_and(|pads| pads.iter().any(|&pad| pad < 0)) {
        return Err("negative pads".to_owned());
    }
    Ok(())
}

fn without_places(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.has_output(1) {
        return Err("the places of the maxima".to_owned());
    }
    is_image(graph, node)
}

/// Height and width; a sequence is an image of height 1.
fn image(tensor: &Tensor) -> Result<[usize; 2]> {
    match *tensor.shape.as_slice() {
        [_, _, length] => Ok([1, length]),
        [_, _, height, width] => Ok([height, width]),
        _ => Err(Error::invalid(format!("{:?} is no image", tensor.shape))),
    }
}

/// The shape of an image, or of a sequence if the input was one.
fn shaped(x: &Tensor, channels: usize, [height, width]: [usize; 2]) -> Vec<usize> {
    let batch = x.shape.first().copied().unwrap_or(1);
    if x.rank() == 3 { vec![batch, channels, width] } else { vec![batch, channels, height, width] }
}

/// An attribute with a number for each axis.
fn pair(call: &Call<'_>, name: &str, otherwise: usize) -> Result<[usize; 2]> {
    match call.node.ints(name) {
        None => Ok([otherwise; 2]),
        Some(&[across]) => Ok([otherwise, extent(across)?]),
        Some(&[down, across]) => Ok([extent(down)?, extent(across)?]),
        Some(_) => Err(Error::invalid(format!("{name} are not for two dimensions"))),
    }
}

/// What is before and after the image.
fn pads(call: &Call<'_>) -> Result<[[usize; 2]; 2]> {
    match call.node.ints("pads") {
        None => Ok([[0; 2]; 2]),
        Some(&[left, right]) => Ok([[0, extent(left)?], [0, extent(right)?]]),
        Some(&[top, left, bottom, right]) => {
            Ok([[extent(top)?, extent(left)?], [extent(bottom)?, extent(right)?]])
        }
        Some(_) => Err(Error::invalid("pads are not for two dimensions")),
    }
}

/// The window of this size over an image.
fn window(call: &Call<'_>, size: [usize; 2], from: [usize; 2]) -> Result<Window> {
    let (stride, dilation) = (pair(call, "strides", 1)?, pair(call, "dilations", 1)?);
    let [mut before, mut after] = pads(call)?;
    let mode = call.node.text("auto_pad");
    if mode.starts_with("SAME") {
        let lower = usize::from(mode == "SAME_LOWER");
        for axis in 0..2 {
            let to = from[axis].div_ceil(stride[axis].max(1));
            let span = dilation[axis] * size[axis].saturating_sub(1) + 1;
            let all = (to.saturating_sub(1) * stride[axis] + span).saturating_sub(from[axis]);
            before[axis] = (all + lower) / 2;
            after[axis] = all - before[axis];
        }
    }
    Ok(Window::new(size).with_stride(stride).with_dilation(dilation).with_asymmetric_padding(before, after))
}

fn channels(x: &Tensor) -> Result<(usize, usize)> {
    match x.shape.as_slice() {
        &[batch, channels, ..] => Ok((batch, channels)),
        _ => Err(Error::invalid("a tensor without channels")),
    }
}

fn unfit(x: &Tensor, filter: &Tensor, groups: usize) -> Error {
    Error::invalid(format!("filters {:?} for the image {:?} in {groups} groups", filter.shape, x.shape))
}

fn convolution(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x, filter) = (call.device(), call.input(0)?, call.input(1)?);
    let ((batch, depth), (filters, per_group), [height, width]) =
        (channels(x)?, channels(filter)?, image(x)?);
    let window = window(call, image(filter)?, [height, width])?;
    let groups = extent(call.node.int("group", 1))?;
    if per_group.checked_mul(groups) != Some(depth) {
        return Err(unfit(x, filter, groups));
    }
    let of = ConvShape::new(ImageShape { batch, channels: depth, height, width }, filters, window)
        .with_groups(groups);
    let y = d.empty(x.kind, &shaped(x, filters, of.output("Conv")?))?;
    let mut desc = ConvDesc::new(x.kind.dtype(), d.ptr(x)?, d.ptr(filter)?, d.ptr(&y)?, of)
        .with_activation(activation(call)?);
    desc.bias = d.optional_sized(call.optional(2), filters)?;
    call.backend.conv2d(&desc)?;
    Ok(vec![y])
}

/// Height and width of the output where the attribute `output_shape` has them, with or without batch and
/// channels before them.
fn output_shape(node: &Node, rank: usize) -> Result<Option<[usize; 2]>> {
    let Some(shape) = node.ints("output_shape").filter(|shape| !shape.is_empty()) else { return Ok(None) };
    let image = if shape.len() == rank { shape.get(2..).unwrap_or_default() } else { shape };
    match (image, rank) {
        (&[across], 3) => Ok(Some([1, extent(across)?])),
        (&[down, across], 4) => Ok(Some([extent(down)?, extent(across)?])),
        _ => Err(Error::invalid(format!("an output of {shape:?} from {rank} dimensions"))),
    }
}

/// Where the shape of the output is given, the padding follows from it.
fn transposed(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, node, x, filter) = (call.device(), call.node, call.input(0)?, call.input(1)?);
    let ((batch, depth), (rows, per_group), from, size) =
        (channels(x)?, channels(filter)?, image(x)?, image(filter)?);
    let groups = extent(node.int("group", 1))?;
    let filters = per_group.checked_mul(groups).ok_or_else(|| unfit(x, filter, groups))?;
    if rows != depth {
        return Err(unfit(x, filter, groups));
    }
    let (stride, dilation) = (pair(call, "strides", 1)?, pair(call, "dilations", 1)?);
    let [mut before, mut after] = pads(call)?;
    let mut more = pair(call, "output_padding", 0)?;
    let mode = node.text("auto_pad");
    let shape = output_shape(node, x.rank())?;
    let mut to = [0; 2];
    for axis in 0..2 {
        let full = from[axis].saturating_sub(1) * stride[axis]
            + dilation[axis] * size[axis].saturating_sub(1)
            + 1
            + more[axis];
        let wanted = match shape {
            Some(shape) => Some(shape[axis]),
            None if mode.starts_with("SAME") => Some(from[axis] * stride[axis]),
            None => None,
        };
        if let Some(wanted) = wanted {
            more[axis] += wanted.saturating_sub(full);
            let cut = full.saturating_sub(wanted);
            before[axis] = if mode == "SAME_UPPER" { cut / 2 } else { cut.div_ceil(2) };
            after[axis] = cut - before[axis];
            to[axis] = wanted;
        } else {
            let cut = before[axis] + after[axis];
            to[axis] = full.checked_sub(cut).ok_or_else(|| Error::invalid("pads cut more than there is"))?;
        }
    }
    let window =
        Window::new(size).with_stride(stride).with_dilation(dilation).with_asymmetric_padding(before, after);
    let y = d.empty(x.kind, &shaped(x, filters, to))?;
    let of = ConvShape::new(
        ImageShape { batch, channels: depth, height: from[0], width: from[1] },
        filters,
        window,
    )
    .with_groups(groups);
    let (dtype, from, by) = (x.kind.dtype(), d.ptr(x)?, d.ptr(filter)?);
    let mut desc = ConvTransposeDesc::new(dtype, from, by, d.ptr(&y)?, of).with_output_padding(more);
    desc.bias = d.optional_sized(call.optional(2), filters)?;
    call.backend.conv_transpose2d(&desc)?;
    Ok(vec![y])
}

fn pooling(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, node, x) = (call.device(), call.node, call.input(0)?);
    let op = match (node.operator.as_str(), node.int("count_include_pad", 0)) {
        ("MaxPool", _) => PoolOp::Max,
        (_, 0) => PoolOp::Average,
        _ => PoolOp::AverageWithPadding,
    };
    let from = image(x)?;
    let window = window(call, pair(call, "kernel_shape", 1)?, from)?;
    let to = [places(&window, 0, from[0], node)?, places(&window, 1, from[1], node)?];
    let (batch, depth) = channels(x)?;
    let y = d.empty(x.kind, &shaped(x, depth, to))?;
    let of =
        PoolShape::new(ImageShape { batch, channels: depth, height: from[0], width: from[1] }, to, window);
    call.backend.pool2d(&PoolDesc::new(op, x.kind.dtype(), d.ptr(x)?, d.ptr(&y)?, of))?;
    Ok(vec![y])
}

/// How often a window fits, and with `ceil_mode` once more if it begins inside.
fn places(window: &Window, axis: usize, length: usize, node: &Node) -> Result<usize> {
    let stride = window.stride[axis].max(1);
    let span = window.dilation[axis] * window.size[axis].saturating_sub(1) + 1;
    let padded = length + window.before[axis] + window.after[axis];
    let room = padded.checked_sub(span).ok_or_else(|| Error::invalid("a window larger than the image"))?;
    let whole = room / stride + 1;
    let is_more = node.int("ceil_mode", 0) == 1 && room % stride != 0;
    Ok(whole + usize::from(is_more && whole * stride < length + window.before[axis]))
}

/// A reduction of everything behind the channels.
fn global(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let x = call.input(0)?;
    let axes: Vec<usize> = (2..x.rank()).collect();
    let op = if call.node.operator == "GlobalMaxPool" { ReduceOp::Max } else { ReduceOp::Mean };
    Ok(vec![call.device().reduce(op, x, &axes)?])
}
