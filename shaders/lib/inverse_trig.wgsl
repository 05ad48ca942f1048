// The inverse functions of sine, cosine and tangent, in radians, to eight units in the last place. The
// polynomials are those of S. L. Moshier, Cephes Mathematical Library, asinf.c and atanf.c.

const HALF_PI = 1.5707964;

// asin(y) for 0 ≤ y ≤ 0.5.
fn asin_series(y: f32) -> f32 {
  let z = y * y;
  var p = 4.2163199048e-2;
  p = p * z + 2.4181311049e-2;
  p = p * z + 4.5470025998e-2;
  p = p * z + 7.4953002686e-2;
  p = p * z + 1.6666752422e-1;
  return p * z * y + y;
}

// asin(√((1 − y) / 2)) for 0.5 < y ≤ 1, which is half of acos(y).
fn half_of_acos(y: f32) -> f32 {
  return asin_series(unary_sqrt(0.5 * (1.0 - y)));
}

fn unary_asin(x: f32) -> f32 {
  let y = unary_abs(x);
  if is_nan(x) || y > 1.0 {
    return nan();
  }
  if y > 0.5 {
    return with_sign(HALF_PI - 2.0 * half_of_acos(y), x);
  }
  return with_sign(asin_series(y), x);
}

fn unary_acos(x: f32) -> f32 {
  let y = unary_abs(x);
  if is_nan(x) || y > 1.0 {
    return nan();
  }
  if y > 0.5 {
    let angle = 2.0 * half_of_acos(y);
    return select(angle, 2.0 * HALF_PI - angle, is_negative(x));
  }
  return HALF_PI - with_sign(asin_series(y), x);
}

fn unary_atan(x: f32) -> f32 {
  if is_nan(x) {
    return x;
  }
  let y = unary_abs(x);
  // Of the tangents of 3π/8 and π/8.
  var base = 0.0;
  var t = y;
  if y > 2.4142135 {
    base = HALF_PI;
    // Divisors from 2¹²⁶ on are taken for that, whose quotient vanishes beside π/2.
    t = -1.0 / min(y, 8.507059e37);
  } else if y > 0.41421357 {
    base = 0.5 * HALF_PI;
    t = (y - 1.0) / (y + 1.0);
  }
  let z = t * t;
  var p = 8.05374449538e-2;
  p = p * z - 1.38776856032e-1;
  p = p * z + 1.99777106478e-1;
  p = p * z - 3.33329491539e-1;
  return with_sign(base + (p * z * t + t), x);
}
