//! Cumulative sums.

use backend_api::DType;
use backend_api::desc::CumSumDesc;

use super::expected::{Bytes, Expected};
use crate::float::{MIN_NORMAL_F32, gamma, sums_exactly};
use crate::want::Want;

/// The cumulative sums of packed slices of `length` numbers that are `inner` apart: sums of n numbers in any
/// order, n − 1 roundings or none; of integers modulo 2³².
pub(crate) fn cumsum(
    dtype: DType,
    input: &[f64],
    [length, inner]: [usize; 2],
    exclusive: bool,
    reverse: bool,
) -> Vec<Want> {
    let mut wants = vec![Want::number(0.0); input.len()];
    for slice in 0..input.len() / length.max(1) {
        let start = slice / inner * length * inner + slice % inner;
        let exact = sums_exactly((0..length).map(|i| input[start + i * inner]));
        let (mut sum, mut magnitude, mut bits) = (0.0, 0.0, 0u32);
        for i in 0..length {
            let at = start + if reverse { length - 1 - i } else { i } * inner;
            let mut set = |sum: f64, magnitude: f64, bits: u32| {
                wants[at] = match dtype {
                    DType::I32 => Want::number(f64::from(bits.cast_signed())),
                    DType::U32 => Want::number(f64::from(bits)),
                    _ if exact => Want::near(sum, 0.0),
                    _ => Want::near(sum, gamma(i + 1) * magnitude + i as f64 * MIN_NORMAL_F32),
                };
            };
            if exclusive {
                set(sum, magnitude, bits);
            }
            (sum, magnitude) = (sum + input[at], magnitude + input[at].abs());
            bits = bits.wrapping_add(input[at] as i64 as u32);
            if !exclusive {
                set(sum, magnitude, bits);
            }
        }
    }
    wants
}

pub(super) fn expect_cumsum(desc: &CumSumDesc, memory: &Bytes) -> Expected {
    let CumSumDesc { length, inner, dtype, exclusive, reverse, .. } = *desc;
    if !dtype.is_float() {
        return Expected::exact(desc.output, dtype);
    }
    let x = memory.numbers(desc.input, dtype);
    let wants = cumsum(dtype, &x, [length, inner], exclusive, reverse);
    Expected::packed(desc.output, dtype, wants)
}
