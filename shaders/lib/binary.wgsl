// The functions of two numbers. NaN on either side gives NaN, except in powers and slopes.

fn binary_add(a: f32, b: f32) -> f32 {
  return a + b;
}

fn binary_sub(a: f32, b: f32) -> f32 {
  // Compilers take a − a for zero, which it isn't for an infinity or NaN.
  let is_same = bitcast<u32>(a) == bitcast<u32>(b);
  return select(a - b, nan(), is_same && (is_inf(a) || is_nan(a)));
}

fn binary_mul(a: f32, b: f32) -> f32 {
  return a * b;
}

fn binary_div(a: f32, b: f32) -> f32 {
  return divide(a, b);
}

fn binary_max(a: f32, b: f32) -> f32 {
  return max_nan(a, b);
}

fn binary_min(a: f32, b: f32) -> f32 {
  return min_nan(a, b);
}

// aᵇ for a > 0, not infinite and not 1, and a finite b: 2^(b · log₂a), the product in two parts.
fn power(a: f32, b: f32) -> f32 {
  // |log₂a| is 2⁻²⁵ or more, so that from 2³³ on every b gives 0 or ∞.
  let exponent = clamp(b, -8589934592.0, 8589934592.0);
  let upper_b = upper(exponent);
  let l = log2_parts(a);
  let low = (exponent - upper_b) * l.x + exponent * l.y;
  // Beyond 1, the first part alone gives 0 or ∞.
  return exp2_sum(upper_b * l.x, clamp(low, -1.0, 1.0));
}

// The sign of a negative base to the power of b: NaN for a fraction.
fn negative_base_sign(b: f32) -> f32 {
  let magnitude = unary_abs(b);
  if may_have_fraction(b) && magnitude != floor(magnitude) {
    return nan();
  }
  // From 2²⁴ on, every number is even.
  return select(1.0, -1.0, magnitude < 16777216.0 && (u32(magnitude) & 1u) == 1u);
}

// As C's pow (ISO C, annex F).
fn binary_pow(a: f32, b: f32) -> f32 {
  if is_zero(b) || bitcast<u32>(a) == 0x3f800000u {
    return 1.0;
  }
  if is_nan(a) || is_nan(b) {
    return nan();
  }
  let base = unary_abs(a);
  // A base of 0 or ∞, or such a result.
  let grows = (base > 1.0) != is_negative(b);
  if is_zero(a) || is_inf(a) {
    let odd = is_negative(a) && negative_base_sign(b) < 0.0;
    return select(1.0, -1.0, odd) * select(0.0, inf(), grows);
  }
  if is_inf(b) {
    return select(select(0.0, inf(), grows), 1.0, base == 1.0);
  }
  if base == 1.0 {
    return negative_base_sign(b);
  }
  let y = power(base, b);
  if is_negative(a) {
    return y * negative_base_sign(b);
  }
  return y;
}

fn binary_swiglu(a: f32, b: f32) -> f32 {
  return unary_silu(a) * b;
}

fn binary_geglu(a: f32, b: f32) -> f32 {
  return unary_gelu(a) * b;
}

fn binary_geglu_tanh(a: f32, b: f32) -> f32 {
  return unary_gelu_tanh(a) * b;
}

// A slope that isn't used may be NaN.
fn binary_prelu(a: f32, b: f32) -> f32 {
  if is_nan(a) || is_zero(a) || !is_negative(a) {
    return a;
  }
  return a * b;
}
