//! Convolutions and poolings of one or two dimensions.

use backend_api::desc::{
    ConvDesc, ConvShape, ConvTransposeDesc, ImageShape, PoolDesc, PoolOp, PoolShape, Window,
};

use crate::device::{Outcome, Tensor};
use crate::node::Node;

pub(super) fn run(node: &Node<'_>) -> Outcome<Option<Vec<Tensor>>> {
    let average = match node.int("count_include_pad", 0) {
        0 => PoolOp::Average,
        _ => PoolOp::AverageWithPadding,
    };
    let output = match node.case.operator.as_str() {
        "Conv" => convolution(node)?,
        "ConvTranspose" => transposed(node)?,
        "MaxPool" => pooling(node, PoolOp::Max, None)?,
        "AveragePool" => pooling(node, average, None)?,
        "GlobalMaxPool" => pooling(node, PoolOp::Max, Some(image(node.input(0)?)?))?,
        "GlobalAveragePool" => pooling(node, PoolOp::Average, Some(image(node.input(0)?)?))?,
        _ => return Ok(None),
    };
    Ok(Some(vec![output]))
}

/// Height and width; a sequence is an image of height 1.
fn image(tensor: &Tensor) -> Outcome<[usize; 2]> {
    extents(&tensor.shape)
}

fn extents(shape: &[usize]) -> Outcome<[usize; 2]> {
    match *shape {
        [_, _, length] => Ok([1, length]),
        [_, _, height, width] => Ok([height, width]),
        _ => Err("neither one nor two dimensions".into()),
    }
}

/// An attribute with a number for each axis.
fn pair(node: &Node<'_>, name: &str, otherwise: usize) -> Outcome<[usize; 2]> {
    match node.ints(name).as_deref() {
        None => Ok([otherwise; 2]),
        Some(&[across]) => Ok([otherwise, across as usize]),
        Some(&[down, across]) => Ok([down as usize, across as usize]),
        Some(_) => Err(format!("{name} are not for two dimensions").into()),
    }
}

/// What is before and after the image.
fn pads(node: &Node<'_>) -> Outcome<[[usize; 2]; 2]> {
    match node.ints("pads").as_deref() {
        None => Ok([[0; 2]; 2]),
        Some(&[left, right]) => Ok([[0, left as usize], [0, right as usize]]),
        Some(&[top, left, bottom, right]) => {
            Ok([[top as usize, left as usize], [bottom as usize, right as usize]])
        }
        Some(_) => Err("pads are not for two dimensions".into()),
    }
}

/// The window of this size between an image and what is made of it.
fn window(node: &Node<'_>, size: [usize; 2], from: [usize; 2], to: [usize; 2]) -> Outcome<Window> {
    let (stride, dilation) = (pair(node, "strides", 1)?, pair(node, "dilations", 1)?);
    let [mut before, mut after] = pads(node)?;
    if node.text("auto_pad").starts_with("SAME") {
        let lower = usize::from(node.text("auto_pad") == "SAME_LOWER");
        for axis in 0..2 {
            let needed = (to[axis] - 1) * stride[axis] + dilation[axis] * (size[axis] - 1) + 1;
            let all = needed.saturating_sub(from[axis]);
            before[axis] = (all + lower) / 2;
            after[axis] = all - before[axis];
        }
    }
    Ok(Window::new(size).with_stride(stride).with_dilation(dilation).with_asymmetric_padding(before, after))
}

fn convolution(node: &Node<'_>) -> Outcome<Tensor> {
    let (x, filter) = (node.input(0)?, node.input(1)?);
    let (_, shape) = node.output(0)?;
    let window = window(node, image(filter)?, image(x)?, extents(shape)?)?;
    let y = node.device.empty(x.dtype, shape)?;
    let [height, width] = image(x)?;
    let of = ConvShape::new(
        ImageShape { batch: x.shape[0], channels: x.shape[1], height, width },
        filter.shape[0],
        window,
    )
    .with_groups(node.int("group", 1) as usize);
    let mut desc = ConvDesc::new(x.dtype, x.ptr, filter.ptr, y.ptr, of);
    desc.bias = node.optional(2).map(|bias| bias.ptr);
    node.device.backend.conv2d(&desc)?;
    Ok(y)
}

/// Where the shape of the output is given, the padding follows from it.
fn transposed(node: &Node<'_>) -> Outcome<Tensor> {
    let (x, filter) = (node.input(0)?, node.input(1)?);
    let (_, shape) = node.output(0)?;
    let ([height, width], output, size) = (image(x)?, extents(shape)?, image(filter)?);
    let (stride, dilation) = (pair(node, "strides", 1)?, pair(node, "dilations", 1)?);
    let [mut before, mut after] = pads(node)?;
    let mut more = pair(node, "output_padding", 0)?;
    let same = node.text("auto_pad").starts_with("SAME");
    if same || node.ints("output_shape").is_some() {
        for (axis, extent) in [height, width].into_iter().enumerate() {
            let full = (extent - 1) * stride[axis] + dilation[axis] * (size[axis] - 1) + 1 + more[axis];
            more[axis] += output[axis].saturating_sub(full);
            let cut = full.saturating_sub(output[axis]);
            let upper = node.text("auto_pad") == "SAME_UPPER";
            before[axis] = if upper { cut / 2 } else { cut.div_ceil(2) };
            after[axis] = cut - before[axis];
        }
    }
    let window =
        Window::new(size).with_stride(stride).with_dilation(dilation).with_asymmetric_padding(before, after);
    let y = node.device.empty(x.dtype, shape)?;
    let of = ConvShape::new(
        ImageShape { batch: x.shape[0], channels: x.shape[1], height, width },
        shape[1],
        window,
    )
    .with_groups(node.int("group", 1) as usize);
    let mut desc = ConvTransposeDesc::new(x.dtype, x.ptr, filter.ptr, y.ptr, of).with_output_padding(more);
    desc.bias = node.optional(2).map(|bias| bias.ptr);
    node.device.backend.conv_transpose2d(&desc)?;
    Ok(y)
}

/// With windows of the given size, or of the attribute `kernel_shape`.
fn pooling(node: &Node<'_>, op: PoolOp, size: Option<[usize; 2]>) -> Outcome<Tensor> {
    let x = node.input(0)?;
    let (_, shape) = node.output(0)?;
    let size = size.map_or_else(|| pair(node, "kernel_shape", 1), Ok)?;
    let (from, to) = (image(x)?, extents(shape)?);
    let window = window(node, size, from, to)?;
    let y = node.device.empty(x.dtype, shape)?;
    let of = PoolShape::new(
        ImageShape { batch: x.shape[0], channels: x.shape[1], height: from[0], width: from[1] },
        to,
        window,
    );
    node.device.backend.pool2d(&PoolDesc::new(op, x.dtype, x.ptr, y.ptr, of))?;
    Ok(y)
}
