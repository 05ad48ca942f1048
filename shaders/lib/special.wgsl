// Numbers that WGSL has no literals for, and tests for them. WGSL lets a compiler assume that NaN and
// infinity don't occur in arithmetic, so both are made and recognised by their bits.

fn from_bits(bits: u32) -> f32 {
  // Through a variable, because a constant expression may not be infinite or NaN.
  var b = bits;
  return bitcast<f32>(b);
}

fn inf() -> f32 {
  return from_bits(0x7f800000u);
}

fn nan() -> f32 {
  return from_bits(0x7fc00000u);
}

fn is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_inf(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

fn is_negative(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x80000000u) != 0u;
}

// The larger and the smaller of two numbers; NaN if one of them is.
fn max_nan(a: f32, b: f32) -> f32 {
  return select(select(max(a, b), b, is_nan(b)), a, is_nan(a));
}

fn min_nan(a: f32, b: f32) -> f32 {
  return select(select(min(a, b), b, is_nan(b)), a, is_nan(a));
}
