//! Floating-point facts that bounds are made of.

use backend_api::DType;

/// The relative error of one f32 operation. WGSL calls a result correctly rounded when it is either neighbour
/// of the exact one, so this is 2⁻²³, twice the unit roundoff of round-to-nearest.
pub(crate) const ROUNDING: f64 = 1.0 / 8_388_608.0;

/// The smallest normal f32. Results below it may be flushed to zero.
pub(crate) const MIN_NORMAL_F32: f64 = f32::MIN_POSITIVE as f64;

/// The smallest normal f16, 2⁻¹⁴.
const MIN_NORMAL_F16: f64 = 1.0 / 16_384.0;

/// The relative error of `n` operations after each other: Higham's γₙ, with [`ROUNDING`] as the unit. This is
/// the factor 2·γₙ of a bound that counts in units of 2⁻²⁴.
pub(crate) fn gamma(n: usize) -> f64 {
    let x = n as f64 * ROUNDING;
    x / (1.0 - x)
}

/// The roundings that a mean or a variance may show whose sums are [exact](sums_exactly): divisions, and
/// joins of the means of parts.
pub(crate) const JOINS: usize = 12;

/// Whether every sum of some of `terms`, in any order, is an f32: all are multiples of one power of two, of
/// which their magnitudes make 2²⁴ at most.
pub(crate) fn sums_exactly(terms: impl Iterator<Item = f64>) -> bool {
    let (mut lowest, mut magnitude) = (i32::MAX, 0.0);
    for x in terms.filter(|&x| x != 0.0) {
        if !x.is_finite() {
            return false;
        }
        lowest = lowest.min(lowest_bit(x));
        magnitude += x.abs();
    }
    magnitude == 0.0 || (lowest >= -126 && magnitude <= 2f64.powi(lowest.saturating_add(24)))
}

/// The exponent of the lowest bit of a number that is normal in f64.
fn lowest_bit(x: f64) -> i32 {
    let fraction = (x.to_bits() & ((1 << 52) - 1)) | (1 << 52);
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1075;
    exponent + fraction.trailing_zeros() as i32
}

/// The error of the sum of `terms` in any order: n − 1 roundings and flushed terms, or none where every sum
/// is exact.
pub(crate) fn sum_error(terms: impl Iterator<Item = f64> + Clone) -> f64 {
    if sums_exactly(terms.clone()) {
        return 0.0;
    }
    let (mut n, mut magnitude) = (0, 0.0);
    for x in terms {
        n += 1;
        magnitude += x.abs();
    }
    gamma(n) * magnitude + n as f64 * MIN_NORMAL_F32
}

/// The distance between f32 numbers around `x`.
pub(crate) fn ulp_f32(x: f64) -> f64 {
    quantum(x, 23, -126)
}

/// The error of rounding to the nearest number of `dtype`. For f32 only subnormal results need it: the bounds
/// of others count their last rounding themselves.
pub(crate) fn storage_rounding(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F16 => quantum(x, 10, -14) / 2.0,
        DType::F32 if x.abs() < MIN_NORMAL_F32 => ulp_f32(x),
        _ => 0.0,
    }
}

/// From which magnitude on rounding to nearest gives an infinity.
pub(crate) fn overflow_threshold(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65_520.0,
        _ => 2f64.powi(128) - 2f64.powi(103),
    }
}

/// The smallest normal number of `dtype`.
pub(crate) fn min_normal(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => MIN_NORMAL_F16,
        _ => MIN_NORMAL_F32,
    }
}

/// Whether `x` is a number of `dtype` that arithmetic may take for zero.
pub(crate) fn is_subnormal(dtype: DType, x: f64) -> bool {
    x != 0.0 && x.abs() < min_normal(dtype)
}

/// `x` rounded to the nearest number of `dtype`, halves to even.
pub(crate) fn round_to(dtype: DType, x: f64) -> f64 {
    match dtype {
        DType::F16 => round_f16(x),
        DType::F32 => f64::from(x as f32),
        DType::I32 | DType::U32 => x.round_ties_even(),
        other => unimplemented!("a test of {other}"),
    }
}

fn round_f16(x: f64) -> f64 {
    if !x.is_finite() {
        return x;
    }
    if x.abs() >= overflow_threshold(DType::F16) {
        return f64::INFINITY.copysign(x);
    }
    let quantum = quantum(x, 10, -14);
    ((x / quantum).round_ties_even() * quantum).copysign(x)
}

/// 2^(exponent of x − fraction bits), the exponent being at least `min_exponent`.
fn quantum(x: f64, fraction_bits: i32, min_exponent: i32) -> f64 {
    if !x.is_finite() {
        return 0.0;
    }
    // The biased exponent field; 0 and subnormal f64 fall below any minimum asked for here.
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    2f64.powi(exponent.max(min_exponent) - fraction_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_rounding_agrees_with_every_f16_and_its_midpoints() {
        for bits in 0..0x7c00u16 {
            let x = f64::from(half::f16::from_bits(bits));
            assert_eq!(round_f16(x), x);
            let next = match bits {
                0x7bff => 65_536.0,
                _ => f64::from(half::f16::from_bits(bits + 1)),
            };
            let even = match (bits % 2, bits) {
                (0, _) => x,
                (_, 0x7bff) => f64::INFINITY,
                _ => next,
            };
            let middle = (x + next) / 2.0;
            assert_eq!(round_f16(middle), even);
            assert_eq!(round_f16(-middle), -even);
            assert_eq!(round_f16(middle - x * 1e-10 - 1e-18), x);
        }
    }

    #[test]
    fn sums_are_exact_where_no_partial_sum_needs_25_bits() {
        let exact = |terms: &[f64]| sums_exactly(terms.iter().copied());
        assert!(exact(&[]) && exact(&[0.0, -0.0]) && exact(&[0.75; 1000]));
        assert!(exact(&[2f64.powi(23), -1.0, 0.0]) && exact(&[2f64.powi(60); 5]));
        assert!(!exact(&[2f64.powi(24), 1.0]) && !exact(&[1.0, f64::NAN]) && !exact(&[f64::INFINITY]));
        assert!(!exact(&[0.1, 0.2]));
        assert_eq!(sum_error([1.0, -2.0].into_iter()), 0.0);
        assert!(sum_error([0.1, -0.2].into_iter()) > 0.3 * 2.0 * ROUNDING);
    }

    #[test]
    fn ulps() {
        assert_eq!(ulp_f32(1.0), f64::from(f32::EPSILON));
        assert_eq!(ulp_f32(0.0), f64::from(f32::from_bits(1)));
        assert_eq!(ulp_f32(-3.9), 2.0 * f64::from(f32::EPSILON));
    }
}
