//! Reductions.

use backend_api::desc::ReduceDesc;
use backend_api::{BackendResult, DType, ReduceOp};

use super::expected::{Bytes, Expected, places_of};
use super::softmax::counts;
use crate::float::{ROUNDING, gamma, sum_error, ulp_f32};
use crate::want::Want;

/// The reduction of floating-point `values`, in any order.
///
/// A sum makes n − 1 roundings, or none where all sums are exact. A mean divides it (2.5 units in the last
/// place) or multiplies it by a reciprocal (2.5 and one more): at most 4 further roundings. A product makes n
/// − 1 roundings, each relative to the result, as long as no partial product leaves the normal range, which
/// the inputs see to.
pub(crate) fn reduce(op: ReduceOp, values: &[f64]) -> Want {
    let n = values.len();
    let sum: f64 = values.iter().sum();
    let magnitude: f64 = values.iter().map(|x| x.abs()).sum();
    let error = || sum_error(values.iter().copied());
    let truth = |holds: bool| Want::number(f64::from(u8::from(holds)));
    match op {
        ReduceOp::Any => truth(values.iter().any(|&x| x != 0.0)),
        ReduceOp::All => truth(values.iter().all(|&x| x != 0.0)),
        ReduceOp::ArgMax => index(values, |a, b| a > b),
        ReduceOp::ArgMin => index(values, |a, b| a < b),
        _ if values.iter().any(|x| x.is_nan()) => Want::Exact(f64::NAN),
        ReduceOp::Sum => Want::near(sum, error()),
        ReduceOp::Mean if n == 0 => Want::Exact(f64::NAN),
        ReduceOp::Mean => {
            let error = error();
            let bound = error + gamma(4) * (sum.abs() + error);
            Want::near(sum / n as f64, bound / n as f64)
        }
        ReduceOp::Max => Want::number(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
        ReduceOp::Min => Want::number(values.iter().copied().fold(f64::INFINITY, f64::min)),
        ReduceOp::Prod => {
            let product: f64 = values.iter().product();
            Want::near(product, gamma(n) * product.abs())
        }
        ReduceOp::NormL1 => Want::near(magnitude, error()),
        ReduceOp::NormL2 => norm_l2(values),
        ReduceOp::LogSumExp => log_sum_exp(values),
        other => unimplemented!("an oracle of {}", other.name()),
    }
}

/// The first of the numbers that none beats, or the first NaN.
fn index(values: &[f64], beats: fn(f64, f64) -> bool) -> Want {
    let mut best: Option<(usize, f64)> = None;
    for (i, &x) in values.iter().enumerate() {
        let wins = |(_, y): (usize, f64)| (x.is_nan() && !y.is_nan()) || beats(x, y);
        if best.is_none_or(wins) {
            best = Some((i, x));
        }
    }
    Want::number(best.map_or(-1.0, |(i, _)| i as f64))
}

/// √Σx²: a square root halves the relative error of the sum, n roundings with that of the squares, and adds
/// 4.5 of its own, being 1/inverseSqrt. Squares may be flushed.
fn norm_l2(values: &[f64]) -> Want {
    let squares: f64 = values.iter().map(|x| x * x).sum();
    if !squares.is_finite() {
        return Want::Exact(squares);
    }
    let error = match sum_error(values.iter().map(|x| x * x)) {
        0.0 => 0.0,
        error => error + ROUNDING * (squares + error),
    };
    let (value, low) = (squares.sqrt(), (squares - error).max(0.0).sqrt());
    Want::near(value, value - low + 4.5 * ROUNDING * value)
}

/// m + ln Σ exp(x − m), taken in two launches at most.
///
/// Joining two sums takes an exponential (3 roundings and 2 for each unit of its argument), a product and an
/// addition; the arguments of one number's exponentials add up to x − m, each being rounded. A logarithm is
/// off by 2⁻²¹ or 3 units in the last place, and so is the rounded result. A sum that [counts] is exact.
fn log_sum_exp(values: &[f64]) -> Want {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if max.is_infinite() {
        return Want::Exact(max);
    }
    let n = values.len();
    let sum: f64 = values.iter().map(|x| (x - max).exp()).sum();
    // An exponential that is flushed has no error to speak of.
    let term = |x: f64| (x - max).exp() / sum * 3.0 * (max - x).min(150.0) * ROUNDING;
    let joins = if counts(values, max) { 0.0 } else { gamma(5 * n + 10) };
    let relative = values.iter().map(|&x| term(x)).sum::<f64>() + joins;
    let log = (n as f64).ln();
    let stage = 2f64.powi(-21).max(3.0 * ulp_f32(log)) + ROUNDING * (max.abs() + log);
    Want::near(max + sum.ln(), 1.001 * relative + 2.0 * stage)
}

/// The reduction of integers, modulo 2³².
pub(crate) fn reduce_integers(op: ReduceOp, dtype: DType, values: &[f64]) -> Want {
    let words = values.iter().map(|&x| x as i64 as u32);
    let number = |bits: u32| {
        Want::number(if dtype == DType::I32 { f64::from(bits.cast_signed()) } else { f64::from(bits) })
    };
    match op {
        ReduceOp::Sum => number(words.fold(0, u32::wrapping_add)),
        ReduceOp::Prod => number(words.fold(1, u32::wrapping_mul)),
        ReduceOp::Max if values.is_empty() => number(if dtype == DType::I32 { 1 << 31 } else { 0 }),
        ReduceOp::Min if values.is_empty() => number(if dtype == DType::I32 { !(1 << 31) } else { u32::MAX }),
        _ => reduce(op, values),
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

pub(super) fn expect_reduce(
    op: &'static str,
    desc: &ReduceDesc<'_>,
    memory: &Bytes,
) -> BackendResult<Expected> {
    let (input, dtype) = (desc.input, desc.input.dtype);
    if !dtype.is_float() || desc.op.is_index() {
        return Ok(Expected::exact(desc.output, desc.output_dtype));
    }
    let x = memory.numbers(input.ptr, dtype);
    let (_, loops) = desc.operands(op)?;
    let reduced = places_of(&loops.reduced);
    let wants = places_of(&loops.kept).into_iter().map(|[from, to]| {
        let values: Vec<f64> = reduced.iter().map(|[at]| x[input.offset + from + at]).collect();
        (to, reduce(desc.op, &values))
    });
    Ok(Expected::computed(desc.output, desc.output_dtype, wants.collect()))
}
