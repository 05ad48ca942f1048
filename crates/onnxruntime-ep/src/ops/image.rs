//! Convolutions of sequences, images and volumes.

mod volume;

use backend_api::desc::{ConvDesc, ConvShape, ConvTransposeDesc, ImageShape};

use super::call::Call;
use super::matrix::activation;
use super::shape::extent;
use super::window::{Slide, channels, is_of, list, moves, shaped, slides, spatial, window};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Conv", Kinds::Float, convolution).with_check(is_convolved),
    Operator::new("ConvTranspose", Kinds::Float, transposed).with_check(is_convolved),
];

/// Sequences, images and volumes.
fn is_convolved(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    is_of(&[1, 2, 3], graph, node)
}

fn unfit(x: &Tensor, filter: &Tensor, groups: usize) -> Error {
    Error::invalid(format!("filters {:?} for the image {:?} in {groups} groups", filter.shape, x.shape))
}

fn convolution(call: &Call<'_>) -> Result<Vec<Tensor>> {
    Ok(vec![convolved(call, call.input(0)?, call.input(1)?, call.optional(2))?])
}

/// The convolution that a node's attributes describe.
pub(super) fn convolved(
    call: &Call<'_>,
    x: &Tensor,
    filter: &Tensor,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    let groups = extent(call.node.int("group", 1))?;
    let ((_, depth), (_, per_group)) = (channels(x)?, channels(filter)?);
    if per_group.checked_mul(groups) != Some(depth) {
        return Err(unfit(x, filter, groups));
    }
    if x.rank() == 5 {
        return volume::convolution(call, x, filter, groups, bias);
    }
    let image = spatial(x)?;
    let slides = slides(call, spatial(filter)?, image)?;
    of_images(call, x, filter, groups, bias, image, slides)
}

/// A convolution of images, whatever their shape is called, or of sequences.
fn of_images(
    call: &Call<'_>,
    x: &Tensor,
    filter: &Tensor,
    groups: usize,
    bias: Option<&Tensor>,
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
    desc.bias = d.optional_sized(bias, filters)?;
    call.backend.conv2d(&desc)?;
    Ok(y)
}

/// How a transposed convolution spreads an axis.
#[derive(Clone, Copy, Debug)]
struct Spread {
    slide: Slide,
    /// Elements of the output behind those that are reached.
    more: usize,
    /// Elements of the output.
    to: usize,
}

/// How each axis is spread. Where the shape of the output is given, the padding follows from it.
fn spreads<const N: usize>(
    call: &Call<'_>,
    rank: usize,
    size: [usize; N],
    from: [usize; N],
) -> Result<[Spread; N]> {
    let mode = call.node.text("auto_pad");
    let more: [usize; N] = list(call, "output_padding", 0)?;
    let given = call.node.ints("output_shape").filter(|shape| !shape.is_empty());
    // With or without batch and channels before them.
    let given = given.map(|shape| if shape.len() == rank { &shape[2..] } else { shape });
    if given.is_some_and(|given| given.len() + 2 != rank) {
        return Err(Error::invalid(format!("an output of {given:?} from {rank} dimensions")));
    }
    let slides = moves(call, size)?;
    let mut spreads = [Spread { slide: Slide::STILL, more: 0, to: 1 }; N];
    for axis in 0..N {
        let mut slide: Slide = slides[axis];
        let mut more = more[axis];
        let full = from[axis].saturating_sub(1) * slide.stride + slide.span() + more;
        let place = (axis + given.map_or(0, <[i64]>::len)).checked_sub(N);
        let wanted = match (given, place) {
            (Some(given), Some(place)) => given.get(place).map(|&to| extent(to)).transpose()?,
            (Some(_), None) => Some(1),
            (None, _) if mode.starts_with("SAME") => Some(from[axis] * slide.stride),
            (None, _) => None,
        };
        let to = if let Some(wanted) = wanted {
            more += wanted.saturating_sub(full);
            let cut = full.saturating_sub(wanted);
            slide = slide.padded(cut, mode != "SAME_UPPER");
            wanted
        } else {
            full.checked_sub(slide.padding()).ok_or_else(|| Error::invalid("pads cut more than there is"))?
        };
        spreads[axis] = Spread { slide, more, to };
    }
    Ok(spreads)
}

fn transposed(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x, filter) = (call.device(), call.input(0)?, call.input(1)?);
    let ((_, depth), (rows, per_group)) = (channels(x)?, channels(filter)?);
    let groups = extent(call.node.int("group", 1))?;
    let filters = per_group.checked_mul(groups).ok_or_else(|| unfit(x, filter, groups))?;
    if rows != depth {
        return Err(unfit(x, filter, groups));
    }
    if x.rank() == 5 {
        return Ok(vec![volume::transposed(call, x, filter, groups)?]);
    }
    let (size, from) = (spatial(filter)?, spatial(x)?);
    let spreads = spreads(call, x.rank(), size, from)?;
    let bias = d.optional_sized(call.optional(2), filters)?;
    Ok(vec![of_spread_images(call, x, filter, groups, bias, from, spreads)?])
}

/// A transposed convolution of images or sequences.
fn of_spread_images(
    call: &Call<'_>,
    x: &Tensor,
    filter: &Tensor,
    groups: usize,
    bias: Option<u64>,
    [height, width]: [usize; 2],
    spreads: [Spread; 2],
) -> Result<Tensor> {
    let d = call.device();
    let ((batch, channels), (_, per_group)) = (channels(x)?, channels(filter)?);
    let filters = per_group * groups;
    let y = d.empty(x.kind, &shaped(x, filters, spreads.map(|spread| spread.to)))?;
    let image = ImageShape { batch, channels, height, width };
    let of = ConvShape::new(image, filters, window(spreads.map(|spread| spread.slide))).with_groups(groups);
    let (dtype, from, by) = (x.kind.dtype(), d.ptr(x)?, d.ptr(filter)?);
    let mut desc = ConvTransposeDesc::new(dtype, from, by, d.ptr(&y)?, of)
        .with_output_padding(spreads.map(|spread| spread.more));
    desc.bias = bias;
    call.backend.conv_transpose2d(&desc)?;
    Ok(y)
}
