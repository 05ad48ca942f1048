//! Convolutions of volumes, as those of their images.

use backend_api::BinaryOp;

use super::{of_images, of_spread_images, spreads};
use crate::error::{Error, Result};
use crate::numbers::Numbers;
use crate::ops::Call;
use crate::ops::movement::permute;
use crate::ops::window::{channels, slides, spatial};
use crate::tensor::Tensor;

/// A convolution of volumes, as one of images: those that a filter sees one behind the other are channels.
pub(super) fn convolution(
    call: &Call<'_>,
    x: &Tensor,
    filter: &Tensor,
    groups: usize,
    bias: Option<&Tensor>,
) -> Result<Tensor> {
    let d = call.device();
    let ((batch, depth), (filters, per_group)) = (channels(x)?, channels(filter)?);
    let (from, size) = (spatial::<3>(x)?, spatial::<3>(filter)?);
    let [deep, down, across] = slides(call, size, from)?;
    let places = deep.places(from[0], false)?;
    let (planes, area) = (from[0] + deep.padding(), from[1] * from[2]);
    let padded = if deep.padding() == 0 {
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
    let y = of_images(call, &images, &rows, groups, bias, [from[1], from[2]], [down, across])?;
    let [height, width] = spatial::<2>(&y)?;
    let y = y.reshaped(vec![batch, places, filters, height, width])?;
    permute(call, &y, &[0, 2, 1, 3, 4])
}

/// A transposed convolution of volumes: one of images, of which every channel of a volume has one for each
/// position of the filter in depth, which are added up where they belong.
pub(super) fn transposed(call: &Call<'_>, x: &Tensor, filter: &Tensor, groups: usize) -> Result<Tensor> {
    let d = call.device();
    let ((batch, depth), (rows, per_group)) = (channels(x)?, channels(filter)?);
    let filters = per_group * groups;
    let (from, size) = (spatial::<3>(x)?, spatial::<3>(filter)?);
    let [deep, down, across] = spreads(call, 5, size, from)?;
    let images = permute(call, x, &[0, 2, 1, 3, 4])?;
    let images = d.reshape(&images, vec![batch * from[0], depth, from[1], from[2]])?;
    let images = d.packed(&images)?;
    let planes = filter.reshaped(vec![rows, per_group * size[0], size[1], size[2]])?;
    let parts = of_spread_images(call, &images, &planes, groups, None, [from[1], from[2]], [down, across])?;
    let area = down.to * across.to;
    // Everything that is reached, before what the padding cuts.
    let whole = deep.to + deep.slide.padding();
    let (start, stride) = match call.optional(2) {
        Some(bias) if bias.count() == filters => (bias.clone(), 1),
        Some(bias) => return Err(Error::invalid(format!("a bias {:?} for {filters} channels", bias.shape))),
        None => (Tensor::host(x.kind, vec![1], Numbers::Float(vec![0.0]))?, 0),
    };
    let y = d.strided(&start, 0, &[batch, filters, whole, area], &[0, stride, 0, 0])?;
    for position in 0..size[0] {
        let shape = || vec![batch, filters, from[0], area];
        let strides = vec![filters * whole * area, whole * area, deep.slide.stride * area, 1];
        let place = y.viewed(position * deep.slide.dilation * area, shape(), strides);
        let each = filters * size[0] * area;
        let strides = vec![from[0] * each, size[0] * area, each, 1];
        let part = parts.viewed(position * area, shape(), strides);
        d.binary_to(BinaryOp::Add, &place, &part, &place)?;
    }
    let strides = vec![filters * whole * area, whole * area, area, 1];
    let cut = d.viewed(&y, deep.slide.before * area, vec![batch, filters, deep.to, area], strides)?;
    d.reshape(&cut, vec![batch, filters, deep.to, down.to, across.to])
}
