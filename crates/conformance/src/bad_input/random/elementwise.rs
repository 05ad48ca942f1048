//! Random element-wise operations and copies.

use backend_api::desc::{
    AffineDesc, BinaryDesc, ClampDesc, CompareDesc, CopyDesc, TensorDesc, UnaryDesc, Value, WhereDesc,
};
use backend_api::{BackendResult, BinaryOp, CompareOp, DType, UnaryOp};

use super::Call;
use super::calls::{Method, call};
use super::draw::{dtype, factor, maybe, shape, size};
use super::pool::Pool;
use crate::rng::Rng;

pub(super) const METHODS: &[Method] =
    &[unary, binary, unary_ext, binary_ext, copy, compare, where_cond, clamp, affine];

fn unary<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, input, output, n) = (rng.pick(UnaryOp::ALL), pool.pick(rng), pool.pick(rng), size(rng));
    let shape = [n];
    let desc = UnaryDesc::new(
        op,
        TensorDesc::packed(input, DType::F32, &shape),
        TensorDesc::packed(output, DType::F32, &shape),
    );
    let verdict = pool.check("unary", desc.operands("unary").map(|(operands, _)| operands));
    call(format!("unary {op:?} {input:#x} {output:#x} {n}"), verdict, move |b| b.unary(op, input, output, n))
}

fn binary<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, n) = (rng.pick(BinaryOp::ALL), size(rng));
    let h: [u64; 3] = std::array::from_fn(|_| pool.pick(rng));
    let shape = [n];
    let [a, b, output] = h.map(|ptr| TensorDesc::packed(ptr, DType::F32, &shape));
    let operands = BinaryDesc::new(op, a, b, output).operands("binary");
    let verdict = pool.check("binary", operands.map(|(operands, _)| operands));
    call(format!("binary {op:?} {h:x?} {n}"), verdict, move |b| b.binary(op, h[0], h[1], h[2], n))
}

/// A tensor's owned parts.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    ptr: u64,
    dtype: DType,
    shape: Vec<usize>,
    strides: Option<Vec<usize>>,
}

impl Tensor {
    fn random(rng: &mut Rng, pool: &Pool<'_>, dtype: DType, shape: &[usize]) -> Self {
        let mut shape = shape.to_vec();
        if rng.one_in(6) && !shape.is_empty() {
            let at = rng.below(shape.len());
            shape[at] = size(rng);
        }
        let rank = if rng.one_in(9) { rng.below(5) } else { shape.len() };
        let strides: Vec<usize> = (0..rank).map(|_| size(rng)).collect();
        Self { ptr: pool.pick(rng), dtype, shape, strides: maybe(rng, strides) }
    }

    pub(super) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Takes the extents of `other` in another order; `axes` is a permutation.
    pub(super) fn reorder(&mut self, other: &Self, axes: &[usize]) {
        self.shape = axes.iter().map(|&axis| other.shape[axis]).collect();
    }

    /// Takes the sum of the others' extents along an axis that all have.
    pub(super) fn lengthen(&mut self, axis: usize, others: &[&Self]) {
        let extents: Option<Vec<usize>> = others.iter().map(|other| other.shape.get(axis).copied()).collect();
        if let (Some(extent), Some(extents)) = (self.shape.get_mut(axis), extents) {
            *extent = extents.into_iter().fold(0, usize::saturating_add);
        }
    }

    pub(super) fn desc(&self) -> TensorDesc<'_> {
        TensorDesc::packed(self.ptr, self.dtype, &self.shape).with_strides(self.strides.as_deref())
    }
}

pub(super) fn tensors<const N: usize>(rng: &mut Rng, pool: &Pool<'_>) -> [Tensor; N] {
    let (shape, common) = (shape(rng), dtype(rng));
    std::array::from_fn(|_| {
        let dtype = if rng.one_in(6) { dtype(rng) } else { common };
        Tensor::random(rng, pool, dtype, &shape)
    })
}

fn unary_ext<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, [input, output]) = (rng.pick(UnaryOp::ALL), tensors(rng, pool));
    let usual = op.default_parameters();
    let [alpha, beta] = usual.map(|usual| if rng.one_in(2) { factor(rng) } else { usual });
    let label = format!("unary_ext {op:?} {input:?} {output:?} {alpha} {beta}");
    let with_desc = move |f: &mut dyn FnMut(&UnaryDesc<'_>) -> BackendResult<()>| {
        f(&UnaryDesc::new(op, input.desc(), output.desc()).with_alpha(alpha).with_beta(beta))
    };
    let verdict =
        with_desc(&mut |d| pool.check("unary_ext", d.operands("unary_ext").map(|(operands, _)| operands)));
    call(label, verdict, move |b| with_desc(&mut |d| b.unary_ext(d)))
}

fn binary_ext<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, [x, y, output]) = (rng.pick(BinaryOp::ALL), tensors(rng, pool));
    let numbers: [Option<f64>; 2] =
        std::array::from_fn(|_| if rng.one_in(6) { Some(factor(rng)) } else { None });
    let label = format!("binary_ext {op:?} {x:?} {y:?} {output:?}, numbers {numbers:?}");
    let with_desc = move |f: &mut dyn FnMut(&BinaryDesc<'_>) -> BackendResult<()>| {
        let value = |number: Option<f64>, tensor| number.map_or(Value::Tensor(tensor), Value::Scalar);
        let (a, b) = (value(numbers[0], x.desc()), value(numbers[1], y.desc()));
        f(&BinaryDesc::new(op, a, b, output.desc()))
    };
    let verdict =
        with_desc(&mut |d| pool.check("binary_ext", d.operands("binary_ext").map(|(operands, _)| operands)));
    call(label, verdict, move |b| with_desc(&mut |d| b.binary_ext(d)))
}

fn copy<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [src, dst] = tensors(rng, pool);
    let operands = CopyDesc::new(src.desc(), dst.desc()).operands("copy");
    let verdict = pool.check("copy", operands.map(|(operands, _)| operands));
    call(format!("copy {src:?} {dst:?}"), verdict, move |b| b.copy(&CopyDesc::new(src.desc(), dst.desc())))
}

fn compare<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, [x, y, mut output]) = (rng.pick(CompareOp::ALL), tensors(rng, pool));
    if !rng.one_in(6) {
        output.dtype = DType::U32;
    }
    let operands = CompareDesc::new(op, x.desc(), y.desc(), output.desc()).operands("compare");
    let verdict = pool.check("compare", operands.map(|(operands, _)| operands));
    call(format!("compare {op:?} {x:?} {y:?} {output:?}"), verdict, move |b| {
        b.compare(&CompareDesc::new(op, x.desc(), y.desc(), output.desc()))
    })
}

fn where_cond<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [mut condition, x, y, output] = tensors(rng, pool);
    if !rng.one_in(6) {
        condition.dtype = DType::U32;
    }
    let operands = WhereDesc::new(condition.desc(), x.desc(), y.desc(), output.desc()).operands("where_cond");
    let verdict = pool.check("where_cond", operands.map(|(operands, _)| operands));
    call(format!("where_cond {condition:?} {x:?} {y:?} {output:?}"), verdict, move |b| {
        b.where_cond(&WhereDesc::new(condition.desc(), x.desc(), y.desc(), output.desc()))
    })
}

fn clamp<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let ([input, output], [min, max]) = (tensors(rng, pool), [factor(rng), factor(rng)]);
    let operands = ClampDesc::new(input.desc(), output.desc(), min, max).operands("clamp");
    let verdict = pool.check("clamp", operands.map(|(operands, _)| operands));
    call(format!("clamp {input:?} {output:?} {min} {max}"), verdict, move |b| {
        b.clamp(&ClampDesc::new(input.desc(), output.desc(), min, max))
    })
}

fn affine<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let ([input, output], [scale, bias]) = (tensors(rng, pool), [factor(rng), factor(rng)]);
    let operands = AffineDesc::new(input.desc(), output.desc(), scale, bias).operands("affine");
    let verdict = pool.check("affine", operands.map(|(operands, _)| operands));
    call(format!("affine {input:?} {output:?} {scale} {bias}"), verdict, move |b| {
        b.affine(&AffineDesc::new(input.desc(), output.desc(), scale, bias))
    })
}
