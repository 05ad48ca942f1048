// Conversions from and to f16, as `to_from_what`.

fn f16_from_f16(x: f16) -> f16 {
  return x;
}

fn f32_from_f16(x: f16) -> f32 {
  return f32(x);
}

fn i32_from_f16(x: f16) -> i32 {
  return i32_from_f32(f32(x));
}

fn u32_from_f16(x: f16) -> u32 {
  return u32_from_f32(f32(x));
}

// Rounded to the nearest, halves to even, before the conversion: WGSL leaves its direction open.
fn f16_from_f32(x: f32) -> f16 {
  var magnitude = bitcast<u32>(x) & 0x7fffffffu;
  if magnitude < 0x38800000u {
    // A subnormal result is a multiple of 2⁻²⁴.
    magnitude = bitcast<u32>(round(bitcast<f32>(magnitude) * 16777216.0) * 5.9604645e-8);
  } else if magnitude < 0x477ff000u {
    // Of the fraction's 23 bits, 10 stay; a carry goes into the exponent.
    magnitude = (magnitude + 0xfffu + ((magnitude >> 13u) & 1u)) & ~0x1fffu;
  } else if magnitude < 0x7f800000u {
    // 65 520 and more is nearer to 65 536, which is infinity.
    magnitude = 0x7f800000u;
  }
  return f16(bitcast<f32>(magnitude | (bitcast<u32>(x) & 0x80000000u)));
}

fn f16_from_i32(x: i32) -> f16 {
  return f16_from_f32(f32(x));
}

fn f16_from_u32(x: u32) -> f16 {
  return f16_from_f32(f32(x));
}
