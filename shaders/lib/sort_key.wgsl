// Integers with the order of numbers.

// NaN is the largest, and the zeros are one.
fn key_of_f32(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let magnitude = bits & 0x7fffffffu;
  if magnitude > 0x7f800000u {
    return 0xffffffffu;
  }
  return select(magnitude | 0x80000000u, ~bits, bits > 0x80000000u);
}

fn key_of_i32(x: i32) -> u32 {
  return bitcast<u32>(x) ^ 0x80000000u;
}

fn key_of_u32(x: u32) -> u32 {
  return x;
}
