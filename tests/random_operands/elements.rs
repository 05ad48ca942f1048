//! Element-wise operations, copies of all kinds, and numbers without inputs.

use backend_api::desc::{
    AffineDesc, BinaryDesc, ClampDesc, CompareDesc, ConcatDesc, CopyDesc, Distribution, PadDesc, PermuteDesc,
    RandomDesc, RepeatDesc, SliceDesc, TensorDesc, UnaryDesc, Value, WhereDesc,
};
use backend_api::{BinaryOp, Command, CompareOp, DType, UnaryOp};

use super::Run;
use super::draw::Draw;

/// Strides of a tensor whose dimensions lie in any order in memory, some of them repeated or with gaps; and how many
/// elements there are from the first to the last.
fn strides(draw: &mut Draw, shape: &[usize], repeated: bool) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..shape.len()).collect();
    if draw.one_in(2) {
        let (i, j) = (draw.below(shape.len()), draw.below(shape.len()));
        order.swap(i, j);
    }
    let mut strides = vec![0; shape.len()];
    let mut elements = 1;
    for &d in order.iter().rev() {
        if repeated && draw.one_in(5) {
            continue;
        }
        strides[d] = elements;
        elements *= shape[d];
        if draw.one_in(6) {
            elements += draw.below(9);
        }
    }
    let reach: usize = shape.iter().zip(&strides).map(|(extent, stride)| (extent - 1) * stride).sum();
    (strides, reach + 1)
}

/// A tensor in memory of its own.
struct Tensor {
    ptr: u64,
    dtype: DType,
    shape: Vec<usize>,
    strides: Vec<usize>,
    offset: usize,
}

impl Tensor {
    fn new(draw: &mut Draw, dtype: DType, shape: &[usize], repeated: bool) -> Self {
        let offset = if draw.one_in(3) { draw.below(20) } else { 0 };
        let (strides, reach) = strides(draw, shape, repeated);
        let ptr = draw.memory(dtype, offset + reach);
        Self { ptr, dtype, shape: shape.to_vec(), strides, offset }
    }

    fn desc(&self) -> TensorDesc<'_> {
        let Self { ptr, dtype, shape, strides, offset } = self;
        TensorDesc::packed(*ptr, *dtype, shape).with_strides(Some(strides)).with_offset(*offset)
    }
}

fn shape(draw: &mut Draw, dtype: DType) -> Vec<usize> {
    let total = draw.elements(dtype);
    match draw.below(3) {
        0 => vec![total],
        1 => draw.extents::<2>(total).to_vec(),
        _ => draw.extents::<4>(total).to_vec(),
    }
}

pub(super) fn unary(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let shape = shape(draw, dtype);
    let y = Tensor::new(draw, dtype, &shape, false);
    let x = if draw.one_in(3) { None } else { Some(Tensor::new(draw, dtype, &shape, true)) };
    let (x, y) = (x.as_ref().unwrap_or(&y).desc(), y.desc());
    match draw.below(3) {
        0 => run(draw, "clamp", Command::Clamp(&ClampDesc::new(x, y, -1.0, 1.5))),
        1 => run(draw, "affine", Command::Affine(&AffineDesc::new(x, y, -2.0, 0.5))),
        _ => {
            let ops: &[UnaryOp] = if dtype.is_float() {
                &[UnaryOp::Exp, UnaryOp::Tanh, UnaryOp::Relu]
            } else {
                &[UnaryOp::Abs, UnaryOp::Neg]
            };
            let op = draw.pick(ops);
            run(draw, "unary_ext", Command::Unary(&UnaryDesc::new(op, x, y)));
        }
    }
}

/// An input of this shape, or the output again.
fn input(draw: &mut Draw, dtype: DType, shape: &[usize], may_be_output: bool) -> Option<Tensor> {
    if may_be_output && draw.one_in(3) { None } else { Some(Tensor::new(draw, dtype, shape, true)) }
}

/// A number, a tensor, or the output in place of one.
fn value<'a>(draw: &mut Draw, tensor: Option<&'a Tensor>, output: &'a Tensor) -> Value<'a> {
    if draw.one_in(6) { Value::Scalar(2.0) } else { Value::Tensor(tensor.unwrap_or(output).desc()) }
}

pub(super) fn binary(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let shape = shape(draw, dtype);
    let compares = draw.one_in(3);
    let y = Tensor::new(draw, if compares { DType::U32 } else { dtype }, &shape, false);
    let [a, b] = [(); 2].map(|()| input(draw, dtype, &shape, !compares));
    let (a, b) = (value(draw, a.as_ref(), &y), value(draw, b.as_ref(), &y));
    if compares {
        let op = draw.pick(CompareOp::ALL);
        return run(draw, "compare", Command::Compare(&CompareDesc::new(op, a, b, y.desc())));
    }
    let op = draw.pick(&[BinaryOp::Add, BinaryOp::Mul, BinaryOp::Sub, BinaryOp::Max]);
    run(draw, "binary_ext", Command::Binary(&BinaryDesc::new(op, a, b, y.desc())));
}

pub(super) fn where_cond(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let shape = shape(draw, dtype);
    let y = Tensor::new(draw, dtype, &shape, false);
    let condition = Tensor::new(draw, DType::U32, &shape, true);
    let [a, b] = [(); 2].map(|()| input(draw, dtype, &shape, true));
    let (a, b) = (value(draw, a.as_ref(), &y), value(draw, b.as_ref(), &y));
    run(draw, "where_cond", Command::Where(&WhereDesc::new(condition.desc(), a, b, y.desc())));
}

pub(super) fn copy(draw: &mut Draw, run: Run<'_>) {
    let (from, to) = (draw.dtype(), draw.dtype());
    let shape = shape(draw, from);
    if draw.one_in(2) {
        let (x, y) = (Tensor::new(draw, from, &shape, true), Tensor::new(draw, to, &shape, false));
        return run(draw, "copy", Command::Copy(&CopyDesc::new(x.desc(), y.desc())));
    }
    let axes: Vec<usize> = (0..shape.len()).rev().collect();
    let turned: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
    let (x, y) = (Tensor::new(draw, from, &shape, true), Tensor::new(draw, from, &turned, false));
    run(draw, "permute", Command::Permute(&PermuteDesc::new(x.desc(), y.desc(), &axes)));
}

pub(super) fn slice(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let whole = shape(draw, dtype);
    let steps: Vec<usize> = whole.iter().map(|_| draw.pick(&[1, 1, 1, 2, 3])).collect();
    let starts: Vec<usize> = whole.iter().map(|&extent| draw.below(extent.min(9))).collect();
    let taken: Vec<usize> = (0..whole.len()).map(|d| (whole[d] - starts[d]).div_ceil(steps[d])).collect();
    let (x, y) = (Tensor::new(draw, dtype, &whole, true), Tensor::new(draw, dtype, &taken, false));
    let desc = SliceDesc::new(x.desc(), y.desc(), &starts).with_steps(&steps);
    run(draw, "slice", Command::Slice(&desc));
}

pub(super) fn pad(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let inside = shape(draw, dtype);
    let before: Vec<usize> = inside.iter().map(|_| draw.below(3)).collect();
    let whole: Vec<usize> = (0..inside.len()).map(|d| before[d] + inside[d] + draw.below(3)).collect();
    let (x, y) = (Tensor::new(draw, dtype, &inside, true), Tensor::new(draw, dtype, &whole, false));
    run(draw, "pad", Command::Pad(&PadDesc::new(x.desc(), y.desc(), &before, 3.0)));
}

pub(super) fn repeat(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let whole = shape(draw, dtype);
    // Extents that divide the output's.
    let once: Vec<usize> = whole
        .iter()
        .map(|&extent| {
            [7, 5, 3, 2]
                .into_iter()
                .find(|times| extent.is_multiple_of(*times))
                .map_or(extent, |times| extent / times)
        })
        .collect();
    let (x, y) = (Tensor::new(draw, dtype, &once, true), Tensor::new(draw, dtype, &whole, false));
    let desc = RepeatDesc::new(x.desc(), y.desc());
    let desc = if draw.one_in(2) { desc.with_interleaved() } else { desc };
    run(draw, "repeat", Command::Repeat(&desc));
}

pub(super) fn concat(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let mut shape = shape(draw, dtype);
    let axis = draw.below(shape.len());
    let inputs: Vec<Tensor> = (0..draw.up_to(3))
        .map(|_| {
            shape[axis] = draw.up_to(shape[axis]);
            Tensor::new(draw, dtype, &shape, true)
        })
        .collect();
    shape[axis] = inputs.iter().map(|input| input.shape[axis]).sum();
    let y = Tensor::new(draw, dtype, &shape, false);
    let inputs: Vec<_> = inputs.iter().map(Tensor::desc).collect();
    run(draw, "concat", Command::Concat(&ConcatDesc::new(&inputs, y.desc(), axis)));
}

pub(super) fn bytes(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let n = draw.elements(dtype);
    let dst = draw.memory(dtype, n + 3);
    if draw.one_in(2) {
        return run(draw, "fill", Command::Fill { dst, dtype, n, value: 3.0 });
    }
    let src = draw.memory(dtype, n + 1);
    let bytes = n * dtype.size() - draw.below(dtype.size());
    run(draw, "copy_dtod", Command::CopyBytes { dst, src, bytes });
}

pub(super) fn random(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    let n = draw.elements(dtype);
    let output = draw.memory(dtype, n);
    let distribution = if draw.one_in(2) {
        Distribution::Uniform { low: -1.0, high: 3.0 }
    } else {
        Distribution::Normal { mean: 1.0, std: 2.0 }
    };
    let mut desc = RandomDesc::new(output, dtype, n, 7, distribution).with_offset(draw.below(9) as u64);
    if draw.one_in(2) {
        desc = desc.with_offset_ptr(draw.insert(vec![5, 0, 0, 0, 1, 0, 0, 0], 4));
    }
    run(draw, "random", Command::Random(&desc));
}
