// The functions of one number, right for every argument: NaN gives NaN, and infinite, zero, huge and
// subnormal numbers give what mathematics says. Drivers' own transcendental functions aren't relied on, since
// WGSL lets them be far off (tanh by 1e-5) and undefined outside of a range. Errors are a few units in the
// last place unless said otherwise.
//
// Polynomials without a source are minimax fits by Remez's algorithm, with the error that they leave.

const SIGN_BIT = 0x80000000u;
const SMALLEST_NORMAL = 0x00800000u;

fn is_zero(x: f32) -> bool {
  return (bitcast<u32>(x) & ~SIGN_BIT) == 0u;
}

fn with_sign(magnitude: f32, sign: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(magnitude) & ~SIGN_BIT) | (bitcast<u32>(sign) & SIGN_BIT));
}

// x without the lower half of its fraction: the product of two such numbers is exact.
fn upper(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// Functions that are exact.

fn unary_abs(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) & ~SIGN_BIT);
}

fn unary_neg(x: f32) -> f32 {
  return bitcast<f32>(bitcast<u32>(x) ^ SIGN_BIT);
}

fn unary_sign(x: f32) -> f32 {
  if is_nan(x) || is_zero(x) {
    return x;
  }
  return with_sign(1.0, x);
}

fn unary_relu(x: f32) -> f32 {
  if is_negative(x) && !is_nan(x) {
    return 0.0;
  }
  return x;
}

// False for numbers from 2²³ on, which are integers, for infinities and for NaN.
fn may_have_fraction(x: f32) -> bool {
  return (bitcast<u32>(x) & ~SIGN_BIT) < 0x4b000000u;
}

// A number that has been rounded to a whole one, which has the sign of x also if it is zero.
fn whole_of(x: f32, whole: f32) -> f32 {
  return select(x, with_sign(whole, x), may_have_fraction(x));
}

fn unary_floor(x: f32) -> f32 {
  return whole_of(x, floor(x));
}

fn unary_ceil(x: f32) -> f32 {
  return whole_of(x, ceil(x));
}

fn unary_trunc(x: f32) -> f32 {
  return whole_of(x, trunc(x));
}

fn unary_round(x: f32) -> f32 {
  return whole_of(x, round(x));
}

// Arithmetic.

// a / b by IEEE 754 also at zeros and infinities; a subnormal b may count as zero.
fn divide(a: f32, b: f32) -> f32 {
  if is_nan(a) || is_nan(b) {
    return nan();
  }
  let sign = (bitcast<u32>(a) ^ bitcast<u32>(b)) & SIGN_BIT;
  let is_small = is_zero(a) || is_inf(b);
  if is_inf(a) || is_zero(b) {
    return select(bitcast<f32>(bitcast<u32>(inf()) | sign), nan(), is_small);
  }
  if is_small {
    return bitcast<f32>(sign);
  }
  // From 2¹²⁶ on, the reciprocal of b may be flushed to zero.
  let scale = select(1.0, 0.25, unary_abs(b) > 8.507059e37);
  return (a * scale) / (b * scale);
}

fn unary_recip(x: f32) -> f32 {
  return divide(1.0, x);
}

fn unary_square(x: f32) -> f32 {
  return x * x;
}

fn unary_sqrt(x: f32) -> f32 {
  if is_nan(x) || is_zero(x) {
    return x;
  }
  if is_negative(x) {
    return nan();
  }
  if is_inf(x) {
    return x;
  }
  let bits = bitcast<u32>(x);
  if bits < SMALLEST_NORMAL {
    // x = bits · 2⁻¹⁴⁹.
    return sqrt(2.0 * f32(bits)) * 2.646978e-23;
  }
  return sqrt(x);
}

fn unary_rsqrt(x: f32) -> f32 {
  if is_nan(x) {
    return x;
  }
  if is_zero(x) {
    return inf();
  }
  if is_negative(x) {
    return nan();
  }
  if is_inf(x) {
    return 0.0;
  }
  let bits = bitcast<u32>(x);
  if bits < SMALLEST_NORMAL {
    return inverseSqrt(2.0 * f32(bits)) * 3.7778932e22;
  }
  return inverseSqrt(x);
}

// The exponential and what is made of it.

// 2ʳ for |r| ≤ 0.51, to 4.3e-9.
fn exp2_fraction(r: f32) -> f32 {
  var p = 0.00015335059;
  p = p * r + 0.001339265;
  p = p * r + 0.009618468;
  p = p * r + 0.05550354;
  p = p * r + 0.24022648;
  p = p * r + 0.6931472;
  return p * r + 1.0;
}

// Few steps to 2ᵛ for −180 ≤ v ≤ 0, as many functions need it: v is rounded to an integer n by a sum whose
// last place is 1. The bits of that sum end in n + 64.
fn rounded_bits(v: f32) -> u32 {
  // A maximum that changes nothing, but keeps compilers from taking the sum and the difference for v.
  return max(bitcast<u32>(v + 12582976.0), 0x4b3fff80u);
}

fn rounded(bits: u32) -> f32 {
  return bitcast<f32>(bits) - 12582976.0;
}

// p · 2ⁿ for p near 1.
fn times_exp2(p: f32, bits: u32) -> f32 {
  // The last step to a subnormal result rounds, by 2⁻⁶⁴.
  return bitcast<f32>(bitcast<u32>(p) + (bits << 23u)) * 5.4210109e-20;
}

// 2^(high + low), |low| being small, high any number but NaN and the result 0 or infinite where it must be.
fn exp2_sum(high: f32, low: f32) -> f32 {
  let bounded = clamp(high, -160.0, 130.0);
  let n = round(bounded + low);
  // The power of two goes into the exponent's bits: as a factor, it would overflow before the product does.
  let p = exp2_fraction((bounded - n) + low);
  let bits = bitcast<u32>(p);
  let exponent = i32(bits >> 23u) + i32(n);
  if exponent > 254 {
    return inf();
  }
  if exponent > 0 {
    return bitcast<f32>(bits + (bitcast<u32>(i32(n)) << 23u));
  }
  return times_exp2(p, bitcast<u32>(i32(n) + 64));
}

// x · log₂e as the sum of two numbers, the first being exact, as the integer part of one number would take
// the accuracy from its fraction.
fn times_log2_e(x: f32) -> vec2<f32> {
  const LOG2_E_HIGH = 1.4423828;
  const LOG2_E_LOW = 0.0003122284;
  let x_high = upper(x);
  return vec2<f32>(x_high * LOG2_E_HIGH, x_high * LOG2_E_LOW + (x - x_high) * (LOG2_E_HIGH + LOG2_E_LOW));
}

fn unary_exp(x: f32) -> f32 {
  if is_nan(x) {
    return x;
  }
  let power = times_log2_e(clamp(x, -110.0, 90.0));
  return exp2_sum(power.x, power.y);
}

// e⁻ˣ for 0 ≤ x ≤ 110.
fn exp_minus(x: f32) -> f32 {
  let power = times_log2_e(-x);
  let bits = rounded_bits(power.x + power.y);
  return times_exp2(exp2_fraction((power.x - rounded(bits)) + power.y), bits);
}

fn unary_sigmoid(x: f32) -> f32 {
  // e ≤ 1, and the quotient doesn't cancel on either side.
  let e = exp_minus(min(unary_abs(x), 110.0));
  return select(select(1.0, e, is_negative(x)) / (1.0 + e), x, is_nan(x));
}

// x · sigmoid(t). The root of e^(−|t|) is multiplied twice: the product may be a normal number though
// e^(−|t|) isn't.
fn times_sigmoid(x: f32, t: f32) -> f32 {
  let root = exp_minus(0.5 * min(unary_abs(t), 220.0));
  let factor = select(1.0, root, is_negative(t));
  return (x * factor) / (1.0 + root * root) * factor;
}

fn unary_silu(x: f32) -> f32 {
  let bounded = max(x, -220.0);
  return select(times_sigmoid(bounded, bounded), x, is_nan(x));
}

// tanh(y) for 0 ≤ y ≤ 0.625 (S. L. Moshier, Cephes Mathematical Library, tanhf.c).
fn tanh_series(y: f32) -> f32 {
  let z = y * y;
  var p = -0.00570498872745;
  p = p * z + 0.0206390887954;
  p = p * z - 0.0537397155531;
  p = p * z + 0.133314422036;
  p = p * z - 0.333332819422;
  return p * z * y + y;
}

// From |x| = 9.1 on, tanh rounds to 1.
const TANH_BOUND = 10.0;

// tanh(x) from y = |x|, at most TANH_BOUND, and e = e^(−2y). Both ways are taken by all invocations.
fn tanh_by(x: f32, y: f32, e: f32) -> f32 {
  let value = select(1.0 - 2.0 * e / (1.0 + e), tanh_series(y), y < 0.625);
  return select(with_sign(value, x), x, is_nan(x));
}

fn unary_tanh(x: f32) -> f32 {
  let y = min(unary_abs(x), TANH_BOUND);
  return tanh_by(x, y, exp_minus(2.0 * y));
}

// Φ(−y) for 0 ≤ y ≤ 14.5, from where on it is zero: e^(−y²/2) · P(t) / (y + 3), where t = (y − 3) / (y + 3)
// maps all y to [−1, 1) (the substitution is that of Shepherd and Laframboise, "Chebyshev Approximation of (1
// + 2x) exp(x²) erfc x in 0 ≤ x < ∞", 1981). It keeps its relative accuracy, as nothing cancels, but for the
// rounding of y², which the exponential makes y² units in the last place.
fn normal_tail(y: f32) -> f32 {
  let inverse = 1.0 / (y + 3.0);
  let t = (y - 3.0) * inverse;
  // Up to y = 14.5, to 2.0e-8.
  var p = 5.1856554e-05;
  p = p * t - 0.00020389893;
  p = p * t - 0.0009467508;
  p = p * t + 0.001017129;
  p = p * t + 0.006937465;
  p = p * t - 0.010462444;
  p = p * t - 0.04725819;
  p = p * t + 0.2300177;
  p = p * t - 0.5093322;
  p = p * t + 0.7290837;
  let power = -0.72134752 * (y * y);
  let bits = rounded_bits(power);
  return p * inverse * times_exp2(exp2_fraction(power - rounded(bits)), bits);
}

// x · Φ(x).
fn unary_gelu(x: f32) -> f32 {
  let tail = normal_tail(min(unary_abs(x), 14.5));
  // The factor and not the difference x − x · Φ(−x), whose second part may be flushed to zero.
  return select(max(x, -14.5) * select(1.0 - tail, tail, is_negative(x)), x, is_nan(x));
}

// x · sigmoid(2w) with w = √(2/π) · (x + 0.044715 · x³), which equals x/2 · (1 + tanh(w)) without its
// cancellation. In the negative tail, the relative error is 2|w| times that of w.
fn unary_gelu_tanh(x: f32) -> f32 {
  let bounded = max(x, -20.0);
  // Past 20, where 2w is more than 600, it only has to stay finite.
  let y = min(bounded, 20.0);
  let value = times_sigmoid(bounded, y * (1.5957692 + 0.071354814 * y * y));
  return select(value, x, is_nan(x));
}
