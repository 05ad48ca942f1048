// Exponentials less one, logarithms of one and more, and the hyperbolic functions that are made of them, to
// eight units in the last place, also where they vanish.

fn unary_expm1(x: f32) -> f32 {
  if is_nan(x) {
    return x;
  }
  if unary_abs(x) > 0.5 {
    return unary_exp(x) - 1.0;
  }
  // (eˣ − 1 − x) / x², to 3.1e-9 of eˣ − 1.
  var p = 0.000198498106;
  p = p * x + 0.00139961764;
  p = p * x + 0.00833357871;
  p = p * x + 0.0416653603;
  p = p * x + 0.166666642;
  p = p * x + 0.50000006;
  return p * x * x + x;
}

fn unary_log1p(x: f32) -> f32 {
  if is_nan(x) {
    return x;
  }
  // Beyond these bounds, what 1 + x loses is less than two units of the logarithm.
  if x < -0.29 || x > 0.41 {
    return unary_log(select(1.0 + x, x, x > 1e9));
  }
  // 2 · atanh(s): (2 · atanh(s) − 2s) / s³ for |s| ≤ 0.1735, to 8.8e-10 of the logarithm.
  let s = x / (2.0 + x);
  let z = s * s;
  var p = 0.299012154;
  p = p * z + 0.399765283;
  p = p * z + 0.666667819;
  // A quotient of the smallest numbers would be flushed to zero.
  return select(2.0 * s + p * z * s, x, unary_abs(x) < 5e-8);
}

// eʸ / 2 for y ≥ 0, which is finite up to y = 89.4, unlike eʸ.
fn half_of_exp(y: f32) -> f32 {
  let power = times_log2_e(min(y, 90.0));
  return exp2_sum(power.x - 1.0, power.y);
}

fn unary_sinh(x: f32) -> f32 {
  if is_nan(x) {
    return x;
  }
  let y = unary_abs(x);
  if y < 1.0 {
    let e = unary_expm1(y);
    return with_sign(0.5 * (e + e / (1.0 + e)), x);
  }
  let h = half_of_exp(y);
  // From 12 on, what is taken away is less than half a unit.
  return with_sign(select(h, h - 0.25 / min(h, 1e9), y < 12.0), x);
}

fn unary_cosh(x: f32) -> f32 {
  if is_nan(x) {
    return x;
  }
  let y = unary_abs(x);
  let h = half_of_exp(y);
  return select(h, h + 0.25 / min(h, 1e9), y < 12.0);
}

// From here on, √(y² ± 1) rounds to y.
const LARGE_FOR_AREA = 8192.0;
const LN2 = 0.69314718;

fn unary_asinh(x: f32) -> f32 {
  if is_nan(x) || is_inf(x) {
    return x;
  }
  let y = unary_abs(x);
  if y > LARGE_FOR_AREA {
    return with_sign(unary_log(y) + LN2, x);
  }
  // y + √(1 + y²) − 1, without the difference.
  let square = y * y;
  return with_sign(unary_log1p(y + square / (1.0 + sqrt(1.0 + square))), x);
}

fn unary_acosh(x: f32) -> f32 {
  if is_nan(x) || x < 1.0 {
    return nan();
  }
  if x > LARGE_FOR_AREA {
    return unary_log(x) + LN2;
  }
  let t = x - 1.0;
  return unary_log1p(t + unary_sqrt(t * (t + 2.0)));
}

fn unary_atanh(x: f32) -> f32 {
  let y = unary_abs(x);
  if is_nan(x) || y > 1.0 {
    return nan();
  }
  if y == 1.0 {
    return with_sign(inf(), x);
  }
  return with_sign(0.5 * unary_log1p(2.0 * y / (1.0 - y)), x);
}
