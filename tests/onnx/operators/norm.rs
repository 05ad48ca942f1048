//! Normalisations.

use backend_api::desc::{BatchNormDesc, ChannelShape, GroupNormDesc, LayerNormDesc, RmsNormDesc};
use backend_api::{BackendResult, BinaryOp, ReduceOp, UnaryOp};

use crate::device::{Device, Outcome, Tensor};
use crate::node::Node;

pub(super) fn run(node: &Node<'_>) -> Outcome<Option<Vec<Tensor>>> {
    Ok(Some(match node.case.operator.as_str() {
        "LayerNormalization" => layer(node)?,
        "RMSNormalization" => vec![root_mean_square(node)?],
        "GroupNormalization" => vec![groups(node, node.int("num_groups", 1) as usize)?],
        "InstanceNormalization" => vec![groups(node, node.input(0)?.shape[1])?],
        "BatchNormalization" => batch(node)?,
        _ => return Ok(None),
    }))
}

/// Rows and columns of a normalisation from an axis on.
fn rows(node: &Node<'_>) -> Outcome<(usize, usize, Vec<usize>)> {
    let x = node.input(0)?;
    let axis = node.axis(-1, x.shape.len())?;
    let (outer, inner) = x.shape.split_at(axis);
    Ok((outer.iter().product(), inner.iter().product(), (axis..x.shape.len()).collect()))
}

/// The mean along some axes, and the mean square of what is left.
fn moments(device: &Device<'_>, x: &Tensor, axes: &[usize]) -> BackendResult<[Tensor; 2]> {
    let mean = device.reduce(ReduceOp::Mean, x, axes)?;
    let rest = device.unary(UnaryOp::Square, &device.binary(BinaryOp::Sub, x, &mean)?)?;
    Ok([mean, device.reduce(ReduceOp::Mean, &rest, axes)?])
}

/// The result, and where they are asked for the means and the inverse deviations.
fn layer(node: &Node<'_>) -> Outcome<Vec<Tensor>> {
    let (device, x) = (node.device, node.input(0)?);
    let (rows, columns, axes) = rows(node)?;
    let y = device.empty(x.dtype, &x.shape)?;
    let mut desc = LayerNormDesc::new(x.dtype, x.ptr, y.ptr, rows, columns);
    desc.eps = node.float("epsilon", 1e-5);
    desc.weight = node.optional(1).map(|weight| weight.ptr);
    desc.bias = node.optional(2).map(|bias| bias.ptr);
    device.backend.layer_norm(&desc)?;
    if node.case.outputs.len() == 1 {
        return Ok(vec![y]);
    }
    let [mean, variance] = moments(device, x, &axes)?;
    Ok(vec![y, mean, device.unary(UnaryOp::Rsqrt, &device.affine(&variance, 1.0, desc.eps)?)?])
}

fn root_mean_square(node: &Node<'_>) -> Outcome<Tensor> {
    let (device, x) = (node.device, node.input(0)?);
    let (rows, columns, _) = rows(node)?;
    let y = device.empty(x.dtype, &x.shape)?;
    let mut desc =
        RmsNormDesc::new(x.dtype, x.ptr, y.ptr, rows, columns).with_eps(node.float("epsilon", 1e-5));
    desc.weight = node.optional(1).map(|weight| weight.ptr);
    device.backend.rms_norm(&desc)?;
    Ok(y)
}

fn channels(x: &Tensor) -> ChannelShape {
    ChannelShape { batch: x.shape[0], channels: x.shape[1], spatial: x.shape[2..].iter().product() }
}

fn groups(node: &Node<'_>, groups: usize) -> Outcome<Tensor> {
    let (device, x) = (node.device, node.input(0)?);
    let y = device.empty(x.dtype, &x.shape)?;
    let desc = GroupNormDesc::new(x.dtype, x.ptr, y.ptr, channels(x), groups)
        .with_eps(node.float("epsilon", 1e-5))
        .with_weight(node.input(1)?.ptr)
        .with_bias(node.input(2)?.ptr);
    device.backend.group_norm(&desc)?;
    Ok(y)
}

/// With the statistics that are given, or in training with those of the batch, which then change the ones
/// given.
fn batch(node: &Node<'_>) -> Outcome<Vec<Tensor>> {
    let (device, x) = (node.device, node.input(0)?);
    let [mean, variance] = [node.input(3)?.clone(), node.input(4)?.clone()];
    let y = device.empty(x.dtype, &x.shape)?;
    let normalise = |mean: &Tensor, variance: &Tensor| -> Outcome<()> {
        let desc = BatchNormDesc::new(x.dtype, x.ptr, y.ptr, mean.ptr, variance.ptr, channels(x))
            .with_eps(node.float("epsilon", 1e-5))
            .with_weight(node.input(1)?.ptr)
            .with_bias(node.input(2)?.ptr);
        Ok(device.backend.batch_norm(&desc)?)
    };
    if node.int("training_mode", 0) == 0 {
        normalise(&mean, &variance)?;
        return Ok(vec![y]);
    }
    let axes: Vec<usize> = (0..x.shape.len()).filter(|&axis| axis != 1).collect();
    let [now_mean, now_variance] = moments(device, x, &axes)?.map(|t| t.reshaped(&mean.shape));
    normalise(&now_mean, &now_variance)?;
    let momentum = node.float("momentum", 0.9);
    let mixed = |before: &Tensor, now: &Tensor| {
        let kept = device.affine(before, momentum, 0.0)?;
        device.binary(BinaryOp::Add, &kept, &device.affine(now, 1.0 - momentum, 0.0)?)
    };
    Ok(vec![y, mixed(&mean, &now_mean)?, mixed(&variance, &now_variance)?])
}
