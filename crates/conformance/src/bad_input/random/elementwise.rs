//! Random element-wise operations and copies.

use backend_api::desc::{BinaryDesc, CopyDesc, TensorDesc, UnaryDesc};
use backend_api::{BinaryOp, DType, UnaryOp};

use super::Call;
use super::calls::call;
use super::draw::{dtype, maybe, shape, size};
use super::pool::Pool;
use crate::rng::Rng;

pub(super) fn unary<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
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

pub(super) fn binary<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
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
struct Tensor {
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

    fn desc(&self) -> TensorDesc<'_> {
        TensorDesc { ptr: self.ptr, dtype: self.dtype, shape: &self.shape, strides: self.strides.as_deref() }
    }
}

fn tensors<const N: usize>(rng: &mut Rng, pool: &Pool<'_>) -> [Tensor; N] {
    let (shape, common) = (shape(rng), dtype(rng));
    std::array::from_fn(|_| {
        let dtype = if rng.one_in(6) { dtype(rng) } else { common };
        Tensor::random(rng, pool, dtype, &shape)
    })
}

pub(super) fn unary_ext<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, [input, output]) = (rng.pick(UnaryOp::ALL), tensors(rng, pool));
    let operands = UnaryDesc::new(op, input.desc(), output.desc()).operands("unary_ext");
    let verdict = pool.check("unary_ext", operands.map(|(operands, _)| operands));
    call(format!("unary_ext {op:?} {input:?} {output:?}"), verdict, move |b| {
        b.unary_ext(&UnaryDesc::new(op, input.desc(), output.desc()))
    })
}

pub(super) fn binary_ext<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let (op, [x, y, output]) = (rng.pick(BinaryOp::ALL), tensors(rng, pool));
    let operands = BinaryDesc::new(op, x.desc(), y.desc(), output.desc()).operands("binary_ext");
    let verdict = pool.check("binary_ext", operands.map(|(operands, _)| operands));
    call(format!("binary_ext {op:?} {x:?} {y:?} {output:?}"), verdict, move |b| {
        b.binary_ext(&BinaryDesc::new(op, x.desc(), y.desc(), output.desc()))
    })
}

pub(super) fn copy<'a>(rng: &mut Rng, pool: &Pool<'_>) -> Call<'a> {
    let [src, dst] = tensors(rng, pool);
    let operands = CopyDesc::new(src.desc(), dst.desc()).operands("copy");
    let verdict = pool.check("copy", operands.map(|(operands, _)| operands));
    call(format!("copy {src:?} {dst:?}"), verdict, move |b| b.copy(&CopyDesc::new(src.desc(), dst.desc())))
}
