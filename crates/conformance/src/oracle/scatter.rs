//! What becomes of a number of a table that others arrive at.

use backend_api::desc::ScatterDesc;
use backend_api::{DType, ScatterOp};

use super::expected::{Bytes, Expected};
use crate::float::{gamma, round_to, sum_error};
use crate::want::Want;

/// What the numbers that arrive, in order, make of the one before. A sum rounds each partial sum, none
/// larger than the sum of magnitudes.
pub(crate) fn scattered(op: ScatterOp, dtype: DType, before: f64, arriving: &[f64]) -> Option<Want> {
    let last = arriving.last()?;
    let all = || arriving.iter().copied();
    Some(match op {
        ScatterOp::Assign => Want::Exact(*last),
        ScatterOp::Add if !dtype.is_float() => {
            let sum: i128 = all().chain([before]).map(|x| x as i128).sum();
            let word = sum.rem_euclid(1 << 32) as u32;
            Want::Exact(if dtype == DType::I32 { f64::from(word.cast_signed()) } else { f64::from(word) })
        }
        ScatterOp::Mul if !dtype.is_float() => {
            let product =
                all().chain([before]).fold(1i128, |product, x| (product * x as i128).rem_euclid(1 << 32));
            let word = product as u32;
            Want::Exact(if dtype == DType::I32 { f64::from(word.cast_signed()) } else { f64::from(word) })
        }
        ScatterOp::Mul => {
            let product = all().fold(before, |product, x| product * x);
            let bound = if product.is_finite() { gamma(arriving.len()) * product.abs() } else { 0.0 };
            Want::near(product, bound)
        }
        ScatterOp::Add => {
            let sum = all().fold(before, |sum, x| sum + x);
            let bound = if sum.is_finite() { sum_error(all().chain([before])) } else { 0.0 };
            Want::near(sum, bound)
        }
        _ if all().chain([before]).any(f64::is_nan) => Want::Exact(f64::NAN),
        ScatterOp::Max => Want::number(all().fold(before, f64::max)),
        _ => Want::number(all().fold(before, f64::min)),
    })
}

pub(super) fn expect_scatter(desc: &ScatterDesc, memory: &Bytes) -> Expected {
    let &ScatterDesc { rows, columns, count, outer, dtype, source_dtype, .. } = desc;
    if !dtype.is_float() || desc.op == ScatterOp::Assign {
        return Expected::moved(desc.table, dtype, source_dtype);
    }
    let table = memory.numbers(desc.table, dtype);
    let source = memory.numbers(desc.source, source_dtype);
    let indices = memory.numbers(desc.indices, DType::U32);
    let mut lists: Vec<Vec<f64>> = vec![Vec::new(); outer * rows * columns];
    for (at, &x) in source.iter().take(outer * count * columns).enumerate() {
        let (o, i, c) = (at / columns / count, at / columns % count, at % columns);
        let index = indices[if desc.per_element { at } else { i }] as usize;
        if index < rows {
            lists[(o * rows + index) * columns + c].push(round_to(dtype, x));
        }
    }
    let wants = lists.iter().enumerate();
    let wants = wants.filter_map(|(at, list)| Some((at, scattered(desc.op, dtype, table[at], list)?)));
    Expected::computed(desc.table, dtype, wants.collect())
}
