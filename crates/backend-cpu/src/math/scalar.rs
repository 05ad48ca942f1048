//! Functions of one or two numbers, without branches that a vector couldn't take.
//!
//! What has to be exact to the last bits in the tails (gelu, tanh, sigmoid) is computed in f64 with
//! polynomials good to 10⁻¹⁰, which leaves the final rounding as the only error that shows. The exponential
//! that softmax is made of is f32.

/// The larger number; NaN if one is NaN; +0 is larger than −0 (IEEE 754-2019 maximum).
#[inline(always)]
pub(crate) fn maximum(a: f32, b: f32) -> f32 {
    if a > b || a.is_nan() || (a == b && a.is_sign_positive()) { a } else { b }
}

/// The smaller number; NaN if one is NaN; −0 is smaller than +0 (IEEE 754-2019 minimum).
#[inline(always)]
pub(crate) fn minimum(a: f32, b: f32) -> f32 {
    if a < b || a.is_nan() || (a == b && a.is_sign_negative()) { a } else { b }
}

/// −1, 0 or 1; a zero keeps its sign.
#[inline(always)]
pub(super) fn sign(x: f32) -> f32 {
    // Comparisons with NaN are false, so NaN and zeros stay as they are.
    if x > 0.0 {
        1.0
    } else if x < 0.0 {
        -1.0
    } else {
        x
    }
}

/// x + β below −α, x − β above α, else 0.
#[inline(always)]
pub(super) fn shrink(x: f32, alpha: f32, beta: f32) -> f32 {
    if x < -alpha {
        x + beta
    } else if x > alpha {
        x - beta
    } else if x.is_nan() {
        x
    } else {
        0.0
    }
}

/// α·x + β, bounded to [0, 1].
#[inline(always)]
pub(super) fn hard_sigmoid(x: f32, alpha: f32, beta: f32) -> f32 {
    minimum(maximum(alpha * x + beta, 0.0), 1.0)
}

/// The remainder with the sign of b.
#[inline(always)]
pub(super) fn modulo(a: f32, b: f32) -> f32 {
    let rest = a % b;
    if rest == 0.0 {
        rest.copysign(b)
    } else if (rest < 0.0) == (b < 0.0) {
        rest
    } else {
        rest + b
    }
}

/// eˣ to one unit in the last place.
///
/// With n = round(x/ln 2) and r = x − n·ln 2, eˣ = 2ⁿ·eʳ. ln 2 is split so that n times its upper part is
/// exact.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    /// Added to a small number, leaves its nearest integer in the low bits of the mantissa.
    const TO_INTEGER: f32 = 12_582_912.0;
    // Beyond these the result is 0 or ∞. The comparisons keep NaN.
    let x = if x < -105.0 { -105.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + TO_INTEGER;
    let n = shifted - TO_INTEGER;
    let r = (x - n * LN2_HI) - n * LN2_LO;
    let q = 0.001_392_617_7_f32;
    let q = q * r + 0.008_363_174;
    let q = q * r + 0.041_666_556;
    let q = q * r + 0.166_665_77;
    let q = q * r + 0.5;
    let power = 1.0 + (r + r * r * q);
    // 2ⁿ may be out of range where 2ⁿ·eʳ isn't, so it is multiplied in two steps.
    let n = shifted.to_bits().wrapping_sub(TO_INTEGER.to_bits()) as i32;
    let half = n >> 1;
    power * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// 1/(1 + e⁻ˣ).
#[inline(always)]
pub(super) fn sigmoid(x: f32) -> f32 {
    (1.0 / (1.0 + exp64(limit(-f64::from(x))))) as f32
}

/// 2ⁿ and eʳ − 1 with eˣ = 2ⁿ·eʳ and |r| ≤ ln 2/2, for |x| ≤ 700.
#[inline(always)]
fn exp_parts(x: f64) -> (f64, f64) {
    const TO_INTEGER: f64 = 6_755_399_441_055_744.0;
    let shifted = x * std::f64::consts::LOG2_E + TO_INTEGER;
    let r = x - (shifted - TO_INTEGER) * std::f64::consts::LN_2;
    // (eʳ − 1 − r)/r², a Chebyshev fit that leaves 3·10⁻¹² of eʳ.
    let q = 2.485_958_037_011_696_5e-5;
    let q = q * r + 1.989_927_610_711_802e-4;
    let q = q * r + 1.388_885_404_703_549_6e-3;
    let q = q * r + 8.333_298_481_174_42e-3;
    let q = q * r + 4.166_666_671_898_665e-2;
    let q = q * r + 1.666_666_671_900_332e-1;
    let q = q * r + 0.5;
    let scale = f64::from_bits((shifted.to_bits() << 52).wrapping_add(1f64.to_bits()));
    (scale, r + r * r * q)
}

/// eˣ for |x| ≤ 700.
#[inline(always)]
fn exp64(x: f64) -> f64 {
    let (scale, m) = exp_parts(x);
    scale * m + scale
}

/// (e²ˣ − 1)/(e²ˣ + 1).
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    // From 10 on, tanh rounds to 1.
    let y = if x.abs() > 10.0 { 10.0 } else { x.abs() };
    let (scale, m) = exp_parts(2.0 * f64::from(y));
    let e = scale * m + (scale - 1.0);
    ((e / (e + 2.0)) as f32).copysign(x)
}

/// x·Φ(x) by Φ(−y) = erfc(y/√2)/2.
///
/// erfc(z) = e^(−z²)·P(t)/(z + 3) with t = (z − 3)/(z + 3) maps all z ≥ 0 to [−1, 1); P is a Chebyshev fit up
/// to z = 10.5 that leaves 2·10⁻¹⁰ of erfc. (The substitution is from Shepherd and Laframboise, "Chebyshev
/// Approximation of (1 + 2x)exp(x²)erfc x in 0 ≤ x < ∞", 1981.)
#[inline(always)]
pub(super) fn gelu(x: f32) -> f32 {
    // From 14.8 on, Φ(−x) underflows f32.
    let x = f64::from(if x < -14.8 { -14.8 } else { x });
    let y = if x.abs() > 14.8 { 14.8 } else { x.abs() };
    let z = y * std::f64::consts::FRAC_1_SQRT_2;
    let inverse = 1.0 / (z + 3.0);
    let t = (z - 3.0) * inverse;
    let p = 4.044_582_949_111_931e-5;
    let p = p * t + 9.793_393_487_145_918e-5;
    let p = p * t - 2.866_632_443_051_026_5e-4;
    let p = p * t - 5.471_304_633_073_619e-4;
    let p = p * t + 3.037_064_562_911_237_6e-3;
    let p = p * t - 1.212_254_450_996_742_6e-3;
    let p = p * t - 2.682_760_669_027_197_7e-2;
    let p = p * t + 1.195_277_272_584_557_4e-1;
    let p = p * t - 3.104_672_454_177_095e-1;
    let p = p * t + 5.902_283_582_803_594e-1;
    let p = p * t - 8.833_944_532_814_692e-1;
    let p = p * t + 1.074_006_907_084_931_2;
    let tail = 0.5 * exp64(-z * z) * p * inverse;
    let phi = if x < 0.0 { tail } else { 1.0 - tail };
    (x * phi) as f32
}

/// x/2·(1 + tanh(u)) = x/(1 + e^(−2u)) with u = √(2/π)·(x + 0.044715·x³).
#[inline(always)]
pub(super) fn gelu_tanh(x: f32) -> f32 {
    // From −14.8 on, the quotient underflows f32.
    let x = f64::from(if x < -14.8 { -14.8 } else { x });
    let u = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2 * (x + 0.044_715 * x * x * x);
    (x / (1.0 + exp64(limit(-2.0 * u)))) as f32
}

/// x/(1 + e⁻ˣ).
#[inline(always)]
pub(super) fn silu(x: f32) -> f32 {
    // From −120 on, the quotient underflows f32.
    let x = f64::from(if x < -120.0 { -120.0 } else { x });
    (x / (1.0 + exp64(limit(-x)))) as f32
}

/// g/(1 + e^(−1.702·g)) · (c + 1) with g = min(a, 7) and c = b within ±7; NaN stays.
#[inline(always)]
pub(super) fn swiglu_oai(a: f32, b: f32) -> f32 {
    const ALPHA: f32 = 1.702;
    // From −120 on, the quotient underflows f32.
    let gate = f64::from(a.clamp(-120.0, 7.0));
    let opened = gate / (1.0 + exp64(limit(-f64::from(ALPHA) * gate)));
    (opened * (f64::from(b.clamp(-7.0, 7.0)) + 1.0)) as f32
}

/// The nearest number that [`exp64`] takes; NaN stays.
#[inline(always)]
fn limit(x: f64) -> f64 {
    let x = if x < -700.0 { -700.0 } else { x };
    if x > 700.0 { 700.0 } else { x }
}
