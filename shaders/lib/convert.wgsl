// Conversions between the 4-byte types, as `to_from_what`. Integers are clamped; WGSL itself doesn't say what
// becomes of a number outside their range.

fn u32_from_u32(x: u32) -> u32 {
  return x;
}

fn f32_from_i32(x: i32) -> f32 {
  return f32(x);
}

// In exact halves, so that only their sum is rounded: some drivers convert large numbers to the wrong
// neighbour.
fn f32_from_u32(x: u32) -> f32 {
  return f32(x >> 16u) * 65536.0 + f32(x & 0xffffu);
}

fn i32_from_f32(x: f32) -> i32 {
  if is_nan(x) { return 0; }
  if x >= 2147483648.0 { return 2147483647; }
  if x <= -2147483648.0 { return -2147483647 - 1; }
  return i32(x);
}

fn u32_from_f32(x: f32) -> u32 {
  if is_nan(x) || x <= 0.0 { return 0u; }
  if x >= 4294967296.0 { return 4294967295u; }
  return u32(x);
}

fn i32_from_u32(x: u32) -> i32 {
  return i32(min(x, 2147483647u));
}

fn u32_from_i32(x: i32) -> u32 {
  return u32(max(x, 0));
}
