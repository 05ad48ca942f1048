//! Random products with experts.

use backend_api::desc::{ExpertMatmulDesc, Matrix, QuantMatrix};
use backend_api::quant::QuantFormat::{self, Mxfp4, Q2_K, Q4_0, Q4_1, Q4_K, Q6_K, Q8_0, U4};
use backend_api::{ComputeBackend as _, DType, Gate};

use super::calls::{BYTES, Call, Ptrs};
use super::shapes::Shapes;

/// Formats of every kind of scales, and of rows that needn't be whole units.
const FORMATS: [QuantFormat; 9] = [
    Q4_0,
    Q8_0,
    Q4_1,
    Mxfp4,
    Q2_K,
    Q4_K,
    Q6_K,
    U4 { group: 16, zero_points: true },
    U4 { group: 32, zero_points: false },
];

/// A product, from one row to those of a prompt.
pub(super) fn experts(shapes: &mut Shapes, p: Ptrs) -> Call {
    let format = shapes.pick(&FORMATS);
    let k = format.block_elements() * shapes.extent(3000 / format.block_elements());
    let (rows, used, n) = (shapes.pick(&[1, 1, 2, 16, 200, 512]), shapes.extent(9), shapes.extent(1000));
    let gate = shapes.pick(&[None, Some(Gate::Swiglu), Some(Gate::SwigluOai)]);
    let stacked = if gate.is_some() { 2 * n } else { n };
    let mut experts = shapes.extent(160);
    while format.bytes(experts * stacked, k).is_ok_and(|bytes| bytes > BYTES) {
        experts /= 2;
    }
    let mut matrix = |ptr, columns| {
        let dtype = shapes.pick(&[DType::F16, DType::F16, DType::F32]);
        Matrix::new(ptr, dtype, columns + shapes.pick(&[0, 0, 8, 1])).with_offset(shapes.pick(&[0, 0, 8, 1]))
    };
    let (a, c) = (matrix(p[0], k), matrix(p[3], n));
    let b = QuantMatrix::new(p[1], format, experts * stacked, k);
    let mut desc = ExpertMatmulDesc::new([rows, used, experts], a, b, p[2], c)
        .with_per_expert(shapes.below(2) == 0)
        .with_accumulate(shapes.below(2) == 0);
    desc.gate = gate;
    desc.weights = shapes.pick(&[None, Some(p[4])]);
    desc.bias = shapes.pick(&[None, None, Some(p[5])]);
    Box::new(move |backend| {
        backend.expert_matmul(&desc)?;
        Ok(format!("{desc:?}"))
    })
}
