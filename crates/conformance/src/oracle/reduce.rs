//! Reductions.

use backend_api::ReduceOp;

use crate::float::{MIN_NORMAL_F32, gamma};
use crate::want::Want;

/// The reduction of `values`, in any order.
///
/// A sum makes n − 1 roundings. A mean divides it (2.5 units in the last place) or multiplies it by a reciprocal
/// (2.5 and one more): at most 4 further roundings. A product makes n − 1 roundings, each relative to the result, as
/// long as no partial product leaves the normal range, which the inputs see to.
pub(crate) fn reduce(op: ReduceOp, values: &[f64]) -> Want {
    let n = values.len();
    let sum: f64 = values.iter().sum();
    let magnitude: f64 = values.iter().map(|x| x.abs()).sum();
    let flushed = n as f64 * MIN_NORMAL_F32;
    match op {
        _ if values.iter().any(|x| x.is_nan()) => Want::Exact(f64::NAN),
        ReduceOp::Sum => Want::near(sum, gamma(n) * magnitude + flushed),
        ReduceOp::Mean if n == 0 => Want::Exact(f64::NAN),
        ReduceOp::Mean => {
            let bound = gamma(n + 4) * magnitude + flushed;
            Want::near(sum / n as f64, bound / n as f64)
        }
        ReduceOp::Max => Want::number(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        ReduceOp::Min => Want::number(values.iter().copied().fold(f64::INFINITY, f64::min)),
        ReduceOp::Prod => {
            let product: f64 = values.iter().product();
            Want::near(product, gamma(n) * product.abs())
        }
        other => unimplemented!("an oracle of {}", other.name()),
    }
}

/// The packed output of a reduction of the middle extent.
pub(crate) fn wants(
    op: ReduceOp,
    values: &[f64],
    [outer, length, inner]: [usize; 3],
    exact: bool,
) -> Vec<Want> {
    let slices = (0..outer * inner).map(|i| slice(values, [i / inner, i % inner], length, inner));
    slices
        .map(|slice| match reduce(op, &slice) {
            Want::Near { value, .. } if exact => Want::number(value),
            want => want,
        })
        .collect()
}

/// The numbers along the axis at (outer, inner).
pub(crate) fn slice(values: &[f64], [outer, at]: [usize; 2], length: usize, inner: usize) -> Vec<f64> {
    (0..length).map(|i| values[(outer * length + i) * inner + at]).collect()
}
