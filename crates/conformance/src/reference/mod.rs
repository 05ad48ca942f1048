//! Two results of one command, judged by the oracles and bounds of the conformance cases, for operands that somebody else
//! made.
//!
//! [`compare`] judges two results of one call. An element on which the two differ is accepted if both are
//! within the oracle's bound, or if they are no farther apart than two such results may be; the latter for
//! numbers at the ends of f32, where the oracle, which has f64, knows less than the two of them. Elements that
//! an operation moves, compares or draws must have the same bits, and so must everything that it doesn't name.

use std::collections::HashMap;

use backend_api::support::Access;
use backend_api::{BackendResult, Command, DType, Difference};

use crate::element::decode;
use crate::float::{min_normal, storage_rounding};
use crate::oracle::{Expected, expected};
use crate::want::Want;

pub use crate::oracle::Bytes;

/// What the results of two backends for one call differ in, beyond what rounding explains. `before` has every
/// operand as it was, `after` the outputs of the two.
///
/// # Errors
/// What the descriptor's checks refuse; nothing where the call has succeeded.
pub fn compare(
    op: &'static str,
    command: &Command<'_>,
    before: &Bytes,
    after: [&Bytes; 2],
) -> BackendResult<Option<Difference>> {
    let operands = command.operands(op)?;
    let outputs = operands.iter().filter(|operand| operand.access == Access::Write && operand.bytes > 0);
    let mut expected_outputs = None;
    for output in outputs {
        let bytes = after.map(|memory| memory.get(output.ptr));
        if bytes[0] == bytes[1] {
            continue;
        }
        let all = match &expected_outputs {
            Some(all) => all,
            None => expected_outputs.insert(expected(op, command, before)?),
        };
        let bitwise = Expected::moved(output.ptr, DType::U32, DType::U32);
        let expected = all.iter().find(|expected| expected.ptr == output.ptr).unwrap_or(&bitwise);
        if let Some(difference) = expected.judge(output.arg, bytes) {
            return Ok(Some(difference));
        }
    }
    Ok(None)
}

impl Expected {
    fn judge(&self, arg: &'static str, bytes: [&[u8]; 2]) -> Option<Difference> {
        let size = self.dtype.size();
        let numbers = bytes.map(|bytes| decode(self.dtype, bytes));
        let mut wants: HashMap<usize, &Want> = self.wants.iter().map(|(at, want)| (*at, want)).collect();
        let total = if wants.is_empty() { numbers[0].len() } else { wants.len() };
        let mut wrong = 0;
        let mut worst: Option<(f64, usize, [f64; 2], Option<&Want>)> = None;
        let elements = bytes[0].chunks(size).zip(bytes[1].chunks(size)).enumerate();
        for (at, _) in elements.filter(|(_, (a, b))| a != b) {
            let pair = numbers.each_ref().map(|numbers| numbers.get(at).copied().unwrap_or(f64::NAN));
            let want = wants.remove(&at);
            let miss = match want {
                Some(want) => miss_of(want, pair, self.dtype),
                None if !self.moved && is_alike(pair, self.dtype) => 0.0,
                None => f64::INFINITY,
            };
            if miss > 1.0 {
                wrong += 1;
                if worst.as_ref().is_none_or(|&(most, ..)| miss > most) {
                    worst = Some((miss, at, pair, want));
                }
            }
        }
        let (_, index, values, want) = worst?;
        let shown = |which: usize| {
            let bits = bytes[which].get(index * size..).unwrap_or_default();
            let bits: String = bits.iter().take(size).rev().map(|byte| format!("{byte:02x}")).collect();
            format!("{:e} (0x{bits})", values[which])
        };
        let accepted = want.map_or_else(|| "the same bits".to_owned(), ToString::to_string);
        Some(Difference::Elements { arg, wrong, total, index, values: [shown(0), shown(1)], accepted })
    }
}

/// How far off the worse of two results is, as a multiple of what is accepted.
fn miss_of(want: &Want, pair: [f64; 2], dtype: DType) -> f64 {
    let worse = pair.map(|got| want.miss(got, dtype)).into_iter().fold(0.0, f64::max);
    if worse <= 1.0 || is_together(want, pair, dtype) { 0.0 } else { worse }
}

/// Whether two results are no farther apart than two within the bound may be.
fn is_together(want: &Want, [a, b]: [f64; 2], dtype: DType) -> bool {
    match want {
        Want::AnyOf(all) => all.iter().any(|want| is_together(want, [a, b], dtype)),
        Want::Near { bound, .. } if bound.is_finite() && *bound > 0.0 => {
            let stored = storage_rounding(dtype, a) + storage_rounding(dtype, b);
            a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 2.0 * bound + stored
        }
        _ => a == b || (a.is_nan() && b.is_nan()),
    }
}

/// Whether exact numbers are equal: NaN is any NaN, and a subnormal number may be zero.
fn is_alike([a, b]: [f64; 2], dtype: DType) -> bool {
    let vanishes = |x: f64| dtype.is_float() && x.abs() < min_normal(dtype);
    (a.is_nan() && b.is_nan()) || a == b || (vanishes(a) && vanishes(b) && (a == 0.0 || b == 0.0))
}
