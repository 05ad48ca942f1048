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

// The remainder by zero is 0, and so is that by −1, of which the quotient may wrap around. Not by the operator:
// GLSL leaves that of negative numbers undefined.
fn i32_rem(a: i32, b: i32) -> i32 {
  if b == 0 || b == -1 {
    return 0;
  }
  return a - a / b * b;
}

fn u32_rem(a: u32, b: u32) -> u32 {
  if b == 0u {
    return 0u;
  }
  return a % b;
}

fn i32_mod(a: i32, b: i32) -> i32 {
  let rest = i32_rem(a, b);
  return select(rest, rest + b, rest != 0 && (rest ^ b) < 0);
}

fn u32_mod(a: u32, b: u32) -> u32 {
  return u32_rem(a, b);
}

// WGSL takes the number of places modulo 32.

fn i32_shl(a: i32, b: i32) -> i32 {
  let places = bitcast<u32>(b);
  return select(a << (places % 32u), 0, places > 31u);
}

fn u32_shl(a: u32, b: u32) -> u32 {
  return select(a << (b % 32u), 0u, b > 31u);
}

fn i32_shr(a: i32, b: i32) -> i32 {
  return a >> min(bitcast<u32>(b), 31u);
}

fn u32_shr(a: u32, b: u32) -> u32 {
  return select(a >> (b % 32u), 0u, b > 31u);
}

fn i32_bit_not(x: i32) -> i32 {
  return ~x;
}

fn u32_bit_not(x: u32) -> u32 {
  return ~x;
}
