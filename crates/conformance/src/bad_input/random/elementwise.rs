//! Random element-wise operations and copies.

use backend_api::desc::{
    AffineDesc, BinaryDesc, ClampDesc, CompareDesc, CopyDesc, TensorDesc, UnaryDesc, Value, WhereDesc,
};
use backend_api::{BinaryOp, CompareOp, DType, UnaryOp};

use super::Call;
use super::calls::{Method, call, call_with};
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
    call_with!(
        pool,
        unary_ext,
        label,
        UnaryDesc::new(op, input.desc(), output.desc()).with_alpha(alpha).with_beta(beta)
    )
}

/// A tensor, or a number in its place.
fn value(tensor: &Tensor, number: Option<f64>) -> Value<'_> {
    number.map_or(Value::Tensor(tensor.desc()), Value::Scalar)
}

fn binary_ext<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, [x, y, output]) = (rng.pick(BinaryOp::ALL), tensors(rng, pool));
    let numbers: [Option<f64>; 2] =
        std::array::from_fn(|_| if rng.one_in(6) { Some(factor(rng)) } else { None });
    let label = format!("binary_ext {op:?} {x:?} {y:?} {output:?}, numbers {numbers:?}");
    call_with!(
        pool,
        binary_ext,
        label,
        BinaryDesc::new(op, value(&x, numbers[0]), value(&y, numbers[1]), output.desc())
    )
}

fn copy<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [src, dst] = tensors(rng, pool);
    let label = format!("copy {src:?} {dst:?}");
    call_with!(pool, copy, label, CopyDesc::new(src.desc(), dst.desc()))
}

fn compare<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, [x, y, mut output]) = (rng.pick(CompareOp::ALL), tensors(rng, pool));
    if !rng.one_in(6) {
        output.dtype = DType::U32;
    }
    let label = format!("compare {op:?} {x:?} {y:?} {output:?}");
    call_with!(pool, compare, label, CompareDesc::new(op, x.desc(), y.desc(), output.desc()))
}

fn where_cond<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [mut condition, x, y, output] = tensors(rng, pool);
    if !rng.one_in(6) {
        condition.dtype = DType::U32;
    }
    let label = format!("where_cond {condition:?} {x:?} {y:?} {output:?}");
    call_with!(pool, where_cond, label, WhereDesc::new(condition.desc(), x.desc(), y.desc(), output.desc()))
}

fn clamp<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let ([input, output], [min, max]) = (tensors(rng, pool), [factor(rng), factor(rng)]);
    let label = format!("clamp {input:?} {output:?} {min} {max}");
    call_with!(pool, clamp, label, ClampDesc::new(input.desc(), output.desc(), min, max))
}

fn affine<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let ([input, output], [scale, bias]) = (tensors(rng, pool), [factor(rng), factor(rng)]);
    let label = format!("affine {input:?} {output:?} {scale} {bias}");
    call_with!(pool, affine, label, AffineDesc::new(input.desc(), output.desc(), scale, bias))
}
