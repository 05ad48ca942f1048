// The functions of integers that aren't an operator's. Sums and products wrap around.

fn i32_relu(x: i32) -> i32 {
  return max(x, 0);
}

fn i32_abs(x: i32) -> i32 {
  return select(x, 0 - x, x < 0);
}

fn i32_neg(x: i32) -> i32 {
  return 0 - x;
}

fn i32_square(x: i32) -> i32 {
  return x * x;
}

fn i32_sign(x: i32) -> i32 {
  return i32(x > 0) - i32(x < 0);
}

// The quotient by zero is 0; that of the smallest number by −1 wraps around. Both would be undefined.
fn i32_div(a: i32, b: i32) -> i32 {
  if b == 0 || b == -1 {
    return select(0 - a, 0, b == 0);
  }
  return a / b;
}

fn u32_div(a: u32, b: u32) -> u32 {
  if b == 0u {
    return 0u;
  }
  return a / b;
}
