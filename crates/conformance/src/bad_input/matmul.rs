//! matmul.

use backend_api::desc::{Bias, BiasAxis, MatmulDesc, Matrix};
use backend_api::{Activation, BackendTranspose, DType};

use super::expect::{OVERFLOW, TOO_SMALL, at_least, dtype, overlap, short_row, too_small};
use super::gemm::{STRIDES, slots};
use super::operation::Change;
use super::{Handles, Operation, Role, Slot};
use BackendTranspose::Trans;

const HUGE: usize = 1 << 40;
const HALF: usize = usize::MAX / 2 + 1;

pub(super) fn operations() -> Vec<Operation> {
    [DType::F32, DType::F16].map(matmul).into()
}

fn product(dtype: DType, h: &Handles) -> MatmulDesc {
    let matrix = |i: usize, ld| Matrix::new(h[i], dtype, ld).with_batch_stride(STRIDES[i]);
    let axis = BiasAxis::Column;
    MatmulDesc::new(3, 4, 5, matrix(0, 6), matrix(1, 5), matrix(2, 4))
        .with_batch(2)
        .with_bias(Bias { ptr: h[3], axis })
        .with_activation(Activation::Relu)
}

fn matmul(element: DType) -> Operation {
    let op = "matmul";
    let bytes = element.size();
    let mut slots = slots(element, 2);
    slots.push(Slot::new("bias", Role::Input, element, 4));
    let changes: Vec<Change<MatmulDesc>> = vec![
        ("C of f16 for A of f32", dtype(op, "c", DType::F16), |d| {
            (d.a.dtype, d.c.dtype) = (DType::F32, DType::F16);
        }),
        ("C of f16 for B of f32", dtype(op, "c", DType::F16), |d| {
            (d.b.dtype, d.c.dtype) = (DType::F32, DType::F16);
        }),
        ("A of i32", dtype(op, "a", DType::I32), |d| d.a.dtype = DType::I32),
        ("A of u32", dtype(op, "a", DType::U32), |d| d.a.dtype = DType::U32),
        ("B of i32", dtype(op, "b", DType::I32), |d| d.b.dtype = DType::I32),
        ("C of u32", dtype(op, "c", DType::U32), |d| d.c.dtype = DType::U32),
        ("bias of n for a bias of m", too_small(op, "bias", 4 * bytes, 5 * bytes), |d| {
            (d.m, d.n, d.a.batch_stride, d.c.batch_stride) = (5, 2, 0, 10);
            (d.a.ld, d.k, d.c.ld) = (5, 1, 2);
            d.bias = d.bias.map(|bias| Bias { axis: BiasAxis::Row, ..bias });
        }),
        ("lda 0 with k 0", at_least(op, "lda", 1, 0), |d| (d.k, d.a.ld) = (0, 0)),
        ("lda below k with m 0", short_row(op, "lda", 5, 4), |d| (d.m, d.a.ld) = (0, 4)),
        ("ldc below n with batch 0", short_row(op, "ldc", 4, 3), |d| {
            (d.batch, d.c.ld) = (0, 3);
        }),
        ("lda below k", short_row(op, "lda", 5, 4), |d| d.a.ld = 4),
        ("ldb below n", short_row(op, "ldb", 4, 3), |d| d.b.ld = 3),
        ("ldc below n", short_row(op, "ldc", 4, 3), |d| d.c.ld = 3),
        ("ldb below k, B transposed", short_row(op, "ldb", 6, 5), |d| {
            (d.k, d.a.ld, d.trans_b) = (6, 6, Trans);
        }),
        ("lda below m, A transposed", short_row(op, "lda", 3, 2), |d| {
            (d.a.ld, d.trans_a) = (2, Trans);
        }),
        ("C repeated", overlap(op, "c", "c"), |d| d.c.batch_stride = 0),
        ("matrices of C overlapping", overlap(op, "c", "c"), |d| {
            d.c.batch_stride = 11;
        }),
        ("a matrix too many", TOO_SMALL, |d| d.batch = 3),
        ("batch usize::MAX", OVERFLOW, |d| d.batch = usize::MAX),
        ("m usize::MAX", OVERFLOW, |d| (d.m, d.batch) = (usize::MAX, 1)),
        ("2^40 columns of 2^40", OVERFLOW, |d| {
            (d.k, d.a.ld, d.b.ld) = (HUGE, HUGE, HUGE);
        }),
        ("stride of A usize::MAX", OVERFLOW, |d| {
            d.a.batch_stride = usize::MAX;
        }),
        ("stride of B usize::MAX", OVERFLOW, |d| {
            d.b.batch_stride = usize::MAX;
        }),
        ("stride of C usize::MAX", OVERFLOW, |d| {
            d.c.batch_stride = usize::MAX;
        }),
        ("lda half of the range", OVERFLOW, |d| d.a.ld = HALF),
    ];
    Operation::of(op, slots, 6.0, move |h| product(element, h), |b, _, d| b.matmul(d), changes)
        .variant(element)
}
