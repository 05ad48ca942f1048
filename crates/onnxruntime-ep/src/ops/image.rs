//! Convolutions of sequences, images and volumes.

use backend_api::desc::{ConvDesc, ConvShape, ConvTransposeDesc, ImageShape, Window};

use super::call::Call;
use super::matrix::activation;
use super::movement::permute;
use super::shape::extent;
use super::window::{Slide, channels, is_of, list, pads, shaped, slides, spatial, window};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Conv", Kinds::Float, convolution).with_check(is_convolved),
    Operator::new("ConvTranspose", Kinds::Float, transposed).with_check(is_image),
];

/// Sequences, images and volumes.
fn is_convolved(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    is_of(&[1, 2, 3], graph, node)
}

/// Sequences and images.
fn is_image(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    is_of(&[1, 2], graph, node)
}

fn unfit(x: &Tensor, filter: &Tensor, groups: usize) -> Error {
    Error::invalid(format!("filters {:?} for the image {:?} in {groups} groups", filter.shape, x.shape))
}

fn convolution(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (x, filter) = (call.input(0)?, call.input(1)?);
    let groups = extent(call.node.int("group", 1))?;
    let ((_, depth), (_, per_group)) = (channels(x)?, channels(filter)?);
    if per_group.checked_mul(groups) != Some(depth) {
        return Err(unfit(x, filter, groups));
    }
    if x.rank() == 5 {
        return Ok(vec![of_volumes(call, x, filter, groups)?]);
    }
    let image = spatial(x)?;
    let slides = slides(call, spatial(filter)?, image)?;
    Ok(vec![of_images(call, x, filter, groups, image, slides)?])
}

/// A convolution of images, whatever their shape is called, or of sequences.
fn of_images(
    call: &Call<'_>,
    x: &Tensor,
    filter: &Tensor,
    groups: usize,
    [height, width]: [usize; 2],
    slides: [Slide; 2],
) -> Result<Tensor> {
    let d = call.device();
    let ((batch, channels), (filters, _)) = (channels(x)?, channels(filter)?);
    let of = ConvShape::new(ImageShape { batch, channels, height, width }, filters, window(slides))
        .with_groups(groups);
    let y = d.empty(x.kind, &shaped(x, filters, of.output("Conv")?))?;
    let mut desc = ConvDesc::new(x.kind.dtype(), d.ptr(x)?, d.ptr(filter)?, d.ptr(&y)?, of)
        .with_activation(activation(call)?);
    desc.bias = d.optional_sized(call.optional(2), filters)?;
    call.backend.conv2d(&desc)?;
    Ok(y)
}

/// A convolution of volumes, as one of images: those that a filter sees one behind the other are channels.
fn of_volumes(call: &Call<'_>, x: &Tensor, filter: &Tensor, groups: usize) -> Result<Tensor> {
    let d = call.device();
    let ((batch, depth), (filters, per_group)) = (channels(x)?, channels(filter)?);
    let (from, size) = (spatial::<3>(x)?, spatial::<3>(filter)?);
    let [deep, down, across] = slides(call, size, from)?;
    let places = deep.places(from[0], false)?;
    let (planes, area) = (from[0] + deep.before + deep.after, from[1] * from[2]);
    let padded = if deep.before + deep.after == 0 {
        x.clone()
    } else {
        d.pad(x, &[batch, depth, planes, from[1], from[2]], &[0, 0, deep.before, 0, 0], 0.0)?
    };
    // Batch and places, groups, positions of the filter, channels of a group, elements of an image.
    let shape = [batch, places, groups, size[0], per_group, area];
    let volume = planes * area;
    let strides = [depth * volume, deep.stride * area, per_group * volume, deep.dilation * area, volume, 1];
    let images = d.strided(&padded, 0, &shape, &strides)?;
    let images = images.reshaped(vec![batch * places, depth * size[0], from[1], from[2]])?;
    let rows = d.viewed(
        filter,
        0,
        vec![filters, size[0], per_group, size[1] * size[2]],
        vec![per_group * size[0] * size[1] * size[2], size[1] * size[2], size[0] * size[1] * size[2], 1],
    )?;
    let rows = d.packed(&rows)?.reshaped(vec![filters, size[0] * per_group, size[1], size[2]])?;
    let y = of_images(call, &images, &rows, groups, [from[1], from[2]], [down, across])?;
    let [height, width] = spatial::<2>(&y)?;
    let y = y.reshaped(vec![batch, places, filters, height, width])?;
    permute(call, &y, &[0, 2, 1, 3, 4])
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
        (channels(x)?, channels(filter)?, spatial::<2>(x)?, spatial::<2>(filter)?);
    let groups = extent(node.int("group", 1))?;
    let filters = per_group.checked_mul(groups).ok_or_else(|| unfit(x, filter, groups))?;
    if rows != depth {
        return Err(unfit(x, filter, groups));
    }
    let (stride, dilation): ([usize; 2], [usize; 2]) =
        (list(call, "strides", 1)?, list(call, "dilations", 1)?);
    let [mut before, mut after]: [[usize; 2]; 2] = pads(call)?;
    let mut more: [usize; 2] = list(call, "output_padding", 0)?;
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
