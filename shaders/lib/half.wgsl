// Functions of numbers that are stored as f16, for which the accuracy of lib/unary would be wasted: at the
// memory's speed there is time for some thirty instructions for each. The device's exp2 is only used where it
// is finite and normal; its error there, which WGSL bounds, is far below an f16's half unit of 2.4e-4.

fn half_exp2(x: f32) -> f32 {
  return exp2(clamp(x, -126.0, 126.0));
}

fn half_exp(x: f32) -> f32 {
  return select(half_exp2(1.442695 * x), x, is_nan(x));
}

fn half_tanh(x: f32) -> f32 {
  let y = min(unary_abs(x), TANH_BOUND);
  return tanh_by(x, y, half_exp2(-2.88539 * y));
}

fn half_sigmoid(x: f32) -> f32 {
  return select(1.0 / (1.0 + half_exp2(-1.442695 * x)), x, is_nan(x));
}

// From −40 down, the result is zero.
fn half_silu(x: f32) -> f32 {
  let bounded = max(x, -40.0);
  return select(bounded / (1.0 + half_exp2(-1.442695 * bounded)), x, is_nan(x));
}

// x · Φ(x) as max(x, 0) − y · Φ(−y) for y = |x|. The logarithm of Φ(−y) to base two is so smooth that a
// polynomial gives Φ(−y) to 5e-8, and to 4e-5 of itself. From 8 on, y · Φ(−y) is zero, and as a factor of any
// f16 too.
fn half_gelu(x: f32) -> f32 {
  let y = min(unary_abs(x), 8.0);
  var p = -1.2820952e-8;
  p = p * y + 4.587018e-7;
  p = p * y - 6.8563456e-6;
  p = p * y + 0.000053973943;
  p = p * y - 0.00020860357;
  p = p * y - 0.0001324914;
  p = p * y + 0.007090077;
  p = p * y - 0.052525942;
  p = p * y - 0.45919657;
  p = p * y - 1.1511068;
  p = p * y - 0.99999996;
  let value = max(x, 0.0) - y * exp2(p);
  return select(value, x, is_nan(x));
}

// As unary_gelu_tanh: x · sigmoid(2w).
fn half_gelu_tanh(x: f32) -> f32 {
  let bounded = max(x, -20.0);
  let y = min(bounded, 20.0);
  let e = half_exp2(-y * (2.3022082 + 0.10294324 * y * y));
  return select(bounded / (1.0 + e), x, is_nan(x));
}

// Gates: a vanishing one is zero beside an infinite b too.

fn half_swiglu(a: f32, b: f32) -> f32 {
  return select(half_silu(a), 0.0, a < -100.0) * b;
}

fn half_geglu(a: f32, b: f32) -> f32 {
  return select(half_gelu(a), 0.0, a < -20.0) * b;
}

fn half_geglu_tanh(a: f32, b: f32) -> f32 {
  return select(half_gelu_tanh(a), 0.0, a < -20.0) * b;
}
