// Comparisons of floating-point numbers by their bits. The devices' own may take subnormal numbers for zero,
// and may assume that there is no NaN.

// An integer with the order of the numbers; both zeros are 0. Without meaning for NaN.
fn order(x: f32) -> i32 {
  let bits = bitcast<i32>(x);
  return select(bits, -(bits & 0x7fffffff), bits < 0);
}

fn is_ordered(a: f32, b: f32) -> bool {
  return !is_nan(a) && !is_nan(b);
}

fn f32_eq(a: f32, b: f32) -> bool {
  return is_ordered(a, b) && order(a) == order(b);
}

fn f32_ne(a: f32, b: f32) -> bool {
  return !f32_eq(a, b);
}

fn f32_lt(a: f32, b: f32) -> bool {
  return is_ordered(a, b) && order(a) < order(b);
}

fn f32_le(a: f32, b: f32) -> bool {
  return is_ordered(a, b) && order(a) <= order(b);
}

fn f32_gt(a: f32, b: f32) -> bool {
  return f32_lt(b, a);
}

fn f32_ge(a: f32, b: f32) -> bool {
  return f32_le(b, a);
}
