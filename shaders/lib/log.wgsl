// Logarithms, accurate enough for the power function.

// log₂(x) for a finite positive x as the sum of two numbers, the first of 12 bits. The relative error is
// about 2⁻³³ near x = 1 too, where log₂(x) vanishes.
//
// x = 2ᵉ · m with m in [√½, √2), and log₂(m) = 2/ln 2 · atanh(s) with s = (m − 1) / (m + 1), in two parts.
fn log2_parts(x: f32) -> vec2<f32> {
  const SCALE_HIGH = 2.8847656;
  const SCALE_LOW = 0.0006244568;
  var bits = bitcast<u32>(x);
  var e = 0;
  if bits < SMALLEST_NORMAL {
    // x = bits · 2⁻¹⁴⁹.
    bits = bitcast<u32>(f32(bits));
    e = -149;
  }
  // The difference to √½ has the exponent of x / √½, rounded down.
  let exponent = bitcast<i32>(bits - 0x3f3504f3u) >> 23u;
  e += exponent;
  let m = bitcast<f32>(bits - (bitcast<u32>(exponent) << 23u));

  let numerator = m - 1.0;
  let denominator = m + 1.0;
  let s = numerator / denominator;
  let s_high = upper(s);
  let d_high = upper(denominator);
  let d_low = m - (d_high - 1.0);
  let s_low = ((numerator - s_high * d_high) - s_high * d_low) / denominator;

  // (atanh(s) − s) / s³ · 2/ln 2, to 1.7e-9.
  let z = s * s;
  var p = 0.33667707;
  p = p * z + 0.41189778;
  p = p * z + 0.57707983;
  p = p * z + 0.9617967;

  let log_high = SCALE_HIGH * s_high;
  let log_low = SCALE_LOW * s + (SCALE_HIGH * s_low + p * z * s);
  let high = upper(f32(e) + (log_high + log_low));
  return vec2<f32>(high, ((f32(e) - high) + log_high) + log_low);
}

fn unary_log(x: f32) -> f32 {
  const LN2_HIGH = 0.69311523;
  const LN2_LOW = 3.1946183e-05;
  if is_nan(x) {
    return x;
  }
  if is_zero(x) {
    return -inf();
  }
  if is_negative(x) {
    return nan();
  }
  if is_inf(x) {
    return x;
  }
  let l = log2_parts(x);
  return l.x * LN2_HIGH + (l.x * LN2_LOW + l.y * (LN2_HIGH + LN2_LOW));
}
