//! Normalisations.

use backend_api::desc::{BatchNormDesc, ChannelShape, GroupNormDesc, LayerNormDesc, RmsNormDesc};
use backend_api::{BinaryOp, ReduceOp, UnaryOp};

use super::call::Call;
use super::device::Device;
use super::shape::{axes, extent};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("LayerNormalization", Kinds::Float, layer).with_check(plain_factors),
    Operator::new("RMSNormalization", Kinds::Float, root_mean_square),
    Operator::new("SimplifiedLayerNormalization", Kinds::Float, root_mean_square).with_check(one_output),
    Operator::new("SkipLayerNormalization", Kinds::Float, skip_layer).of_microsoft().with_check(two_outputs),
    Operator::new("SkipSimplifiedLayerNormalization", Kinds::Float, skip_layer)
        .of_microsoft()
        .with_check(two_outputs),
    Operator::new("GroupNormalization", Kinds::Float, group).with_check(per_channel),
    Operator::new("InstanceNormalization", Kinds::Float, instance),
    Operator::new("MeanVarianceNormalization", Kinds::Float, mean_variance).with_check(axes_there_are),
    Operator::new("BatchNormalization", Kinds::Float, batch).with_check(per_channel_of_one_precision),
];

fn one_output(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.has_output(1) { Err("the inverse deviation as an output".to_owned()) } else { Ok(()) }
}

/// A factor and a summand of the input's element type.
fn plain_factors(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let kind = graph.input_kind(node, 0);
    let is_plain = |i| node.input(i).is_none() || graph.input_kind(node, i) == kind;
    if is_plain(1) && is_plain(2) { Ok(()) } else { Err("mixed precision".to_owned()) }
}

/// The axes that are meant where none are named are those of images.
fn axes_there_are(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let is_known = node.ints("axes").is_some() || graph.input_rank(node, 0).is_some_and(|rank| rank >= 4);
    if is_known { Ok(()) } else { Err("the axes of images on fewer dimensions".to_owned()) }
}

/// The result and the sum, without what only training needs.
fn two_outputs(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let training = node.has_output(1) || node.has_output(2);
    if training { Err("means and deviations as outputs".to_owned()) } else { Ok(()) }
}

/// Before operator set 21 there was a factor for each group.
fn per_channel(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.since < 21 { Err("a factor for each group".to_owned()) } else { Ok(()) }
}

/// Statistics for each channel, of the tensor's own element type. Before operator set 9 there could be some for
/// each position.
fn per_channel_of_one_precision(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.since < 9 && node.int("spatial", 1) == 0 {
        return Err("statistics for each position".to_owned());
    }
    let kind = graph.input_kind(node, 0);
    if (1..5).all(|i| graph.input_kind(node, i) == kind) { Ok(()) } else { Err("mixed precision".to_owned()) }
}

/// Rows and columns of a normalisation from an axis on, and the axes.
fn rows(call: &Call<'_>, x: &Tensor) -> Result<(usize, usize, Vec<usize>)> {
    let axis = call.axis(-1, x.rank())?;
    let (outer, inner) = x.shape.split_at(axis);
    Ok((outer.iter().product(), inner.iter().product(), (axis..x.rank()).collect()))
}

/// A factor or summand as long as what is normalised, expanded if it is broadcast. `None` for one that differs
/// from row to row, or that makes rows longer.
fn row(d: Device<'_>, given: &Tensor, inner: &[usize]) -> Result<Option<Tensor>> {
    let leading = given.shape.iter().take_while(|&&extent| extent == 1).count();
    let shape = &given.shape[leading..];
    let Some(missing) = inner.len().checked_sub(shape.len()) else { return Ok(None) };
    if shape.iter().zip(&inner[missing..]).any(|(&extent, &wanted)| extent != 1 && extent != wanted) {
        return Ok(None);
    }
    if given.count() == inner.iter().product() {
        return Ok(Some(given.clone()));
    }
    d.expand(&given.reshaped(shape.to_vec())?, inner).map(Some)
}

/// Factor and summand of a normalisation: rows that its kernel applies, and tensors that are broadcast over its
/// result.
#[derive(Default)]
struct Affine<'a> {
    rows: [Option<Tensor>; 2],
    later: [Option<&'a Tensor>; 2],
}

impl<'a> Affine<'a> {
    /// Of a normalisation of the dimensions `inner`.
    fn new(d: Device<'_>, given: [Option<&'a Tensor>; 2], inner: &[usize]) -> Result<Self> {
        let mut affine = Self::default();
        for (i, given) in given.into_iter().enumerate() {
            let Some(given) = given else { continue };
            // A sum comes after the product.
            let row = if affine.later[0].is_none() { row(d, given, inner)? } else { None };
            match row {
                Some(row) => affine.rows[i] = Some(row),
                None => affine.later[i] = Some(given),
            }
        }
        Ok(affine)
    }

    /// Applies to the normalised tensor what its kernel hasn't.
    fn apply(&self, d: Device<'_>, mut y: Tensor) -> Result<Tensor> {
        for (op, operand) in [BinaryOp::Mul, BinaryOp::Add].into_iter().zip(self.later) {
            if let Some(operand) = operand {
                y = d.binary(op, &y, operand)?;
            }
        }
        Ok(y)
    }
}

/// The mean along some axes, and the mean square of what is left.
fn moments(d: Device<'_>, x: &Tensor, axes: &[usize]) -> Result<[Tensor; 2]> {
    let mean = d.reduce(ReduceOp::Mean, x, axes)?;
    let rest = d.unary(UnaryOp::Square, &d.binary(BinaryOp::Sub, x, &mean)?)?;
    Ok([mean, d.reduce(ReduceOp::Mean, &rest, axes)?])
}

/// What is normalised.
struct Rows {
    x: Tensor,
    /// What the kernel adds first.
    residual: Option<Tensor>,
    /// Where it writes the sum.
    sum: Option<Tensor>,
}

impl Rows {
    /// Of a tensor and one that is added to it, by the normalisation's kernel if it can.
    fn new(
        d: Device<'_>,
        x: Tensor,
        residual: Option<&Tensor>,
        by_kernel: bool,
        keeps_sum: bool,
    ) -> Result<Self> {
        let Some(residual) = residual else { return Ok(Self { x, residual: None, sum: None }) };
        if !by_kernel || residual.shape != x.shape {
            return Ok(Self { x: d.binary(BinaryOp::Add, &x, residual)?, residual: None, sum: None });
        }
        let sum = if keeps_sum { Some(d.empty(x.kind, &x.shape)?) } else { None };
        Ok(Self { x, residual: Some(residual.clone()), sum })
    }

    /// The result and, fourth, the sum, if somebody asks for it.
    fn outputs(self, call: &Call<'_>, y: Tensor) -> Vec<Tensor> {
        let sum = self.sum.unwrap_or(self.x);
        if call.node.has_output(3) { vec![y.clone(), y.clone(), y, sum] } else { vec![y] }
    }
}

/// The result, and where they are asked for the means and the inverse deviations, of f32. An input that a
/// fusion has put fourth is added first, and the sum is the fourth output.
fn layer(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let d = call.device();
    let summed = Rows::new(d, call.input(0)?.clone(), call.optional(3), true, call.node.has_output(3))?;
    let x = &summed.x;
    let (rows, columns, axes) = rows(call, x)?;
    let y = d.empty(x.kind, &x.shape)?;
    let mut desc = LayerNormDesc::new(x.kind.dtype(), d.ptr(x)?, d.ptr(&y)?, rows, columns);
    let affine = Affine::new(d, [call.optional(1), call.optional(2)], &x.shape[x.rank() - axes.len()..])?;
    desc.eps = call.node.float("epsilon", 1e-5);
    desc.weight = d.optional(affine.rows[0].as_ref())?;
    desc.bias = d.optional(affine.rows[1].as_ref())?;
    desc.residual = d.optional(summed.residual.as_ref())?;
    desc.sum = d.optional(summed.sum.as_ref())?;
    call.backend.layer_norm(&desc)?;
    let y = affine.apply(d, y)?;
    if !(call.node.has_output(1) || call.node.has_output(2)) {
        return Ok(summed.outputs(call, y));
    }
    let [mean, variance] = moments(d, &d.convert(x, Kind::F32)?, &axes)?;
    Ok(vec![y, mean, d.unary(UnaryOp::Rsqrt, &d.affine(&variance, 1.0, desc.eps)?)?])
}

/// The result has the factor's element type; where that isn't the input's, everything is computed in f32.
fn root_mean_square(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x, weight) = (call.device(), call.input(0)?, call.optional(1));
    let to = weight.map_or(x.kind, |weight| weight.kind);
    let kind = if x.kind == to { to } else { Kind::F32 };
    let summed = Rows::new(d, x.clone(), call.optional(3), x.kind == kind, call.node.has_output(3))?;
    let weight = weight.map(|weight| d.convert(weight, kind)).transpose()?;
    let x = d.convert(&summed.x, kind)?;
    let (rows, columns, axes) = rows(call, &x)?;
    let y = d.empty(kind, &x.shape)?;
    let mut desc = RmsNormDesc::new(kind.dtype(), d.ptr(&x)?, d.ptr(&y)?, rows, columns);
    let affine = Affine::new(d, [weight.as_ref(), None], &x.shape[x.rank() - axes.len()..])?;
    desc.eps = call.node.float("epsilon", 1e-5);
    desc.weight = d.optional(affine.rows[0].as_ref())?;
    desc.residual = d.optional(summed.residual.as_ref())?;
    desc.sum = d.optional(summed.sum.as_ref())?;
    call.backend.rms_norm(&desc)?;
    let y = d.convert(&affine.apply(d, y)?, to)?;
    Ok(summed.outputs(call, y))
}

/// A bias and a residual are added first; the sum is an output too.
fn skip_layer(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x, skip) = (call.device(), call.input(0)?, call.input(1)?);
    let simplified = call.node.operator == "SkipSimplifiedLayerNormalization";
    let columns = x.shape.last().copied().unwrap_or(1);
    let rows = x.count() / columns.max(1);
    let x = match call.optional(if simplified { 3 } else { 4 }) {
        Some(bias) => d.binary(BinaryOp::Add, x, bias)?,
        None => x.clone(),
    };
    let summed = Rows::new(d, x, Some(skip), true, call.node.has_output(3))?;
    let x = &summed.x;
    let y = d.empty(x.kind, &x.shape)?;
    let (dtype, from, to) = (x.kind.dtype(), d.ptr(x)?, d.ptr(&y)?);
    let (residual, sum) = (d.optional(summed.residual.as_ref())?, d.optional(summed.sum.as_ref())?);
    let eps = call.node.float("epsilon", 1e-12);
    let weight = d.sized(call.input(2)?, columns)?;
    if simplified {
        let mut desc = RmsNormDesc::new(dtype, from, to, rows, columns).with_eps(eps).with_weight(weight);
        (desc.residual, desc.sum) = (residual, sum);
        call.backend.rms_norm(&desc)?;
    } else {
        let mut desc = LayerNormDesc::new(dtype, from, to, rows, columns).with_eps(eps).with_weight(weight);
        (desc.bias, desc.residual, desc.sum) = (d.optional_sized(call.optional(3), columns)?, residual, sum);
        call.backend.layer_norm(&desc)?;
    }
    Ok(summed.outputs(call, y))
}

fn channels(x: &Tensor) -> Result<ChannelShape> {
    match x.shape.as_slice() {
        &[batch, channels, ref spatial @ ..] => {
            Ok(ChannelShape { batch, channels, spatial: spatial.iter().product() })
        }
        &[channels] => Ok(ChannelShape { batch: 1, channels: 1, spatial: channels }),
        [] => Err(Error::invalid("a tensor without channels")),
    }
}

fn group(call: &Call<'_>) -> Result<Vec<Tensor>> {
    groups(call, extent(call.node.int("num_groups", 1))?)
}

fn instance(call: &Call<'_>) -> Result<Vec<Tensor>> {
    groups(call, channels(call.input(0)?)?.channels)
}

fn groups(call: &Call<'_>, groups: usize) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let y = d.empty(x.kind, &x.shape)?;
    let of = channels(x)?;
    let desc = GroupNormDesc::new(x.kind.dtype(), d.ptr(x)?, d.ptr(&y)?, of, groups)
        .with_eps(call.node.float("epsilon", 1e-5))
        .with_weight(d.sized(call.input(1)?, of.channels)?)
        .with_bias(d.sized(call.input(2)?, of.channels)?);
    call.backend.group_norm(&desc)?;
    Ok(vec![y])
}

/// The difference from the mean, over the deviation.
fn mean_variance(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x) = (call.device(), call.input(0)?);
    let axes = axes(call.node.ints("axes").unwrap_or(&[0, 2, 3]), x.rank())?;
    let wide = d.convert(x, Kind::F32)?;
    let [mean, variance] = moments(d, &wide, &axes)?;
    let deviation = d.affine(&d.unary(UnaryOp::Sqrt, &variance)?, 1.0, 1e-9)?;
    let rest = d.binary(BinaryOp::Sub, &wide, &mean)?;
    Ok(vec![d.convert(&d.binary(BinaryOp::Div, &rest, &deviation)?, x.kind)?])
}

/// With the statistics that are given, or in training with those of the batch, which then change the ones
/// given.
fn batch(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, node, x) = (call.device(), call.node, call.input(0)?);
    let [mean, variance] = [call.input(3)?, call.input(4)?];
    let y = d.empty(x.kind, &x.shape)?;
    let normalise = |mean: &Tensor, variance: &Tensor| -> Result<()> {
        let of = channels(x)?;
        let sized = |tensor: &Tensor| d.sized(tensor, of.channels);
        let (from, to) = (d.ptr(x)?, d.ptr(&y)?);
        let desc = BatchNormDesc::new(x.kind.dtype(), from, to, sized(mean)?, sized(variance)?, of)
            .with_eps(node.float("epsilon", 1e-5))
            .with_weight(sized(call.input(1)?)?)
            .with_bias(sized(call.input(2)?)?);
        Ok(call.backend.batch_norm(&desc)?)
    };
    if node.int("training_mode", 0) == 0 {
        normalise(mean, variance)?;
        return Ok(vec![y]);
    }
    let axes: Vec<usize> = (0..x.rank()).filter(|&axis| axis != 1).collect();
    let [now_mean, now_variance] = moments(d, x, &axes)?;
    normalise(&now_mean, &now_variance)?;
    let momentum = node.float("momentum", 0.9);
    let mixed = |before: &Tensor, now: &Tensor| -> Result<Tensor> {
        let now = now.reshaped(before.shape.clone())?;
        d.binary(BinaryOp::Add, &d.affine(before, momentum, 0.0)?, &d.affine(&now, 1.0 - momentum, 0.0)?)
    };
    let (mean, variance) = (mixed(mean, &now_mean)?, mixed(variance, &now_variance)?);
    Ok(vec![y, mean, variance])
}
