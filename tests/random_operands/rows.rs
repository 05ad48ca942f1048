//! Reductions, sums along axes, normalisations and their gradients.

use backend_api::desc::{
    BatchNormDesc, ChannelShape, CumSumDesc, GroupNormDesc, LayerNormDesc, NormBackwardDesc,
    NormBackwardWeightDesc, ReduceDesc, RmsNormDesc, SoftmaxBackwardDesc, SoftmaxDesc, TensorDesc,
};
use backend_api::{Command, DType, ReduceOp};

use super::Run;
use super::draw::Draw;

pub(super) fn reduce(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let total = draw.elements(dtype);
    let shape = match draw.below(4) {
        0 => vec![total],
        1 => draw.extents::<2>(total).to_vec(),
        2 => draw.extents::<3>(total).to_vec(),
        _ => draw.extents::<5>(total).to_vec(),
    };
    let axes: Vec<usize> = (0..shape.len()).filter(|_| draw.one_in(2)).collect();
    let ops: Vec<ReduceOp> =
        ReduceOp::ALL.iter().copied().filter(|op| dtype.is_float() || !op.is_float_only()).collect();
    // Products of thousands of numbers have no bound.
    let reduced: usize = axes.iter().map(|&axis| shape[axis]).product();
    let op = match draw.pick(&ops) {
        ReduceOp::Prod if reduced > 40 => ReduceOp::Sum,
        op => op,
    };
    let outputs: usize = (0..shape.len()).filter(|d| !axes.contains(d)).map(|d| shape[d]).product();
    let (x, y) = (draw.memory(dtype, total), draw.memory(DType::F32, outputs));
    run(
        draw,
        "reduce_ext",
        Command::Reduce(&ReduceDesc::new(op, TensorDesc::packed(x, dtype, &shape), &axes, y)),
    );
}

/// Outer, axis and inner extents with slices that can be bound, most of the time.
fn around_axis(draw: &mut Draw, dtype: DType) -> [usize; 3] {
    let total = draw.elements(dtype);
    let mut extents: [usize; 3] = draw.extents(total);
    if draw.one_in(2) {
        extents = [extents[0] * extents[2], extents[1], 1];
    }
    if !draw.one_in(4) {
        extents.sort_unstable_by_key(|&extent| std::cmp::Reverse(extent));
    }
    extents
}

/// Another operand of so many elements, or this one.
fn or_in_place(draw: &mut Draw, dtype: DType, n: usize, input: u64) -> u64 {
    if draw.one_in(3) { input } else { draw.memory(dtype, n) }
}

/// Outer, axis and inner extents, and an input and an output of these, which may be one.
fn slices(draw: &mut Draw, dtype: DType) -> ([usize; 3], u64, u64) {
    let extents = around_axis(draw, dtype);
    let n: usize = extents.iter().product();
    let x = draw.memory(dtype, n);
    (extents, x, or_in_place(draw, dtype, n, x))
}

pub(super) fn softmax(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    let ([outer, length, inner], x, y) = slices(draw, dtype);
    let mut desc = SoftmaxDesc::rows(dtype, x, y, outer, length);
    desc.inner = inner;
    desc.log = draw.one_in(3);
    run(draw, "softmax", Command::Softmax(&desc));
}

pub(super) fn softmax_backward(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    let [outer, length, inner] = around_axis(draw, dtype);
    let n = outer * length * inner;
    let (y, dy) = (draw.memory(dtype, n), draw.memory(dtype, n));
    let dx = or_in_place(draw, dtype, n, dy);
    let mut forward = SoftmaxDesc::rows(dtype, y, y, outer, length);
    forward.inner = inner;
    forward.log = draw.one_in(3);
    run(draw, "softmax_backward", Command::SoftmaxBackward(&SoftmaxBackwardDesc::of(&forward, dy, dx)));
}

pub(super) fn cumsum(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let ([outer, length, inner], x, y) = slices(draw, dtype);
    let mut desc = CumSumDesc::rows(dtype, x, y, outer, length);
    desc.inner = inner;
    (desc.exclusive, desc.reverse) = (draw.one_in(3), draw.one_in(3));
    run(draw, "cumsum", Command::CumSum(&desc));
}

/// An element type, rows, columns and elements, and two operands of these; a row can be bound most of the time.
fn float_rows(draw: &mut Draw) -> (DType, [usize; 3], [u64; 2]) {
    let dtype = draw.float();
    let [rows, columns, inner] = around_axis(draw, dtype);
    let (columns, n) = (columns * inner, rows * columns * inner);
    (dtype, [rows, columns, n], [draw.memory(dtype, n), draw.memory(dtype, n)])
}

fn weight_dtype(draw: &mut Draw, dtype: DType) -> DType {
    if draw.one_in(3) { DType::F32 } else { dtype }
}

/// The residual, and where its sum with the input goes: to memory of its own, or to one of the two.
fn residual(draw: &mut Draw, dtype: DType, n: usize, x: u64) -> [Option<u64>; 2] {
    let residual = draw.maybe(|draw| draw.memory(dtype, n));
    let sum = residual.filter(|_| draw.one_in(2)).map(|residual| match draw.below(3) {
        0 => x,
        1 => residual,
        _ => draw.memory(dtype, n),
    });
    [residual, sum]
}

/// Where the result goes and of which type it is: to `y`, to the input if there is no sum with it, or as f16.
fn normalised(draw: &mut Draw, dtype: DType, n: usize, [x, y]: [u64; 2], has_sum: bool) -> (u64, DType) {
    if !has_sum && draw.one_in(3) {
        (x, dtype)
    } else if dtype == DType::F32 && draw.one_in(3) {
        (draw.memory(DType::F16, n), DType::F16)
    } else {
        (y, dtype)
    }
}

pub(super) fn layer_norm(draw: &mut Draw, run: Run<'_>) {
    let (dtype, [rows, columns, n], [x, y]) = float_rows(draw);
    let mut desc = LayerNormDesc::new(dtype, x, y, rows, columns);
    desc.weight_dtype = weight_dtype(draw, dtype);
    desc.weight = draw.maybe(|draw| draw.memory(desc.weight_dtype, columns));
    desc.bias = draw.maybe(|draw| draw.memory(desc.weight_dtype, columns));
    [desc.residual, desc.sum] = residual(draw, dtype, n, x);
    (desc.output, desc.output_dtype) = normalised(draw, dtype, n, [x, y], desc.sum.is_some());
    run(draw, "layer_norm", Command::LayerNorm(&desc));
}

pub(super) fn rms_norm(draw: &mut Draw, run: Run<'_>) {
    let (dtype, [rows, columns, n], [x, y]) = float_rows(draw);
    let mut desc = RmsNormDesc::new(dtype, x, y, rows, columns);
    desc.weight_dtype = weight_dtype(draw, dtype);
    desc.weight = draw.maybe(|draw| draw.memory(desc.weight_dtype, columns));
    [desc.residual, desc.sum] = residual(draw, dtype, n, x);
    (desc.output, desc.output_dtype) = normalised(draw, dtype, n, [x, y], desc.sum.is_some());
    run(draw, "rms_norm", Command::RmsNorm(&desc));
}

/// An element type, channels, how many of them are in a group, and an input and an output, which may be one.
fn channels(draw: &mut Draw) -> (DType, ChannelShape, usize, [u64; 2]) {
    let dtype = draw.float();
    let [batch, channels, spatial] = around_axis(draw, dtype);
    let groups = [7, 4, 3, 2].into_iter().find(|groups| channels.is_multiple_of(*groups)).unwrap_or(1);
    let groups = if draw.one_in(4) { channels } else { groups };
    let n = batch * channels * spatial;
    let x = draw.memory(dtype, n);
    let y = or_in_place(draw, dtype, n, x);
    (dtype, ChannelShape { batch, channels, spatial }, groups, [x, y])
}

pub(super) fn group_norm(draw: &mut Draw, run: Run<'_>) {
    let (dtype, shape, groups, [x, y]) = channels(draw);
    let mut desc = GroupNormDesc::new(dtype, x, y, shape, groups);
    desc.weight_dtype = weight_dtype(draw, dtype);
    desc.weight = draw.maybe(|draw| draw.memory(desc.weight_dtype, shape.channels));
    desc.bias = draw.maybe(|draw| draw.memory(desc.weight_dtype, shape.channels));
    run(draw, "group_norm", Command::GroupNorm(&desc));
}

pub(super) fn batch_norm(draw: &mut Draw, run: Run<'_>) {
    let (dtype, shape, _, [x, y]) = channels(draw);
    let of = weight_dtype(draw, dtype);
    let (mean, variance) = (draw.memory(of, shape.channels), draw.positive(of, shape.channels));
    let mut desc = BatchNormDesc::new(dtype, x, y, mean, variance, shape);
    desc.weight_dtype = of;
    desc.weight = draw.maybe(|draw| draw.memory(of, shape.channels));
    desc.bias = draw.maybe(|draw| draw.memory(of, shape.channels));
    run(draw, "batch_norm", Command::BatchNorm(&desc));
}

fn gradient(draw: &mut Draw) -> NormBackwardDesc {
    let (dtype, [rows, columns, n], [x, dy]) = float_rows(draw);
    let dx = or_in_place(draw, dtype, n, dy);
    let mut desc = if draw.one_in(2) {
        NormBackwardDesc::layer_norm(dtype, x, dy, dx, rows, columns)
    } else {
        NormBackwardDesc::rms_norm(dtype, x, dy, dx, rows, columns)
    };
    desc.weight = draw.maybe(|draw| draw.memory(dtype, columns));
    desc
}

pub(super) fn norm_backward(draw: &mut Draw, run: Run<'_>) {
    let desc = gradient(draw);
    run(draw, "norm_backward", Command::NormBackward(&desc));
}

pub(super) fn norm_backward_weight(draw: &mut Draw, run: Run<'_>) {
    let input = gradient(draw);
    let dw = draw.memory(input.dtype, input.columns);
    run(draw, "norm_backward_weight", Command::NormBackwardWeight(&NormBackwardWeightDesc::of(&input, dw)));
}
