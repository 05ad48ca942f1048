// Two parts of f16 of an f32 number: the nearest one, and what that leaves over.
//
// Each line across k is scaled by a power of two that brings its largest magnitude to 2¹⁴ or a little above, so that
// neither part leaves the range of f16.

// The exponent of the scaled lines, and that of a line with an infinity or a NaN.
const TOP: i32 = 14;
const NO_EXPONENT: i32 = 128;

// The exponent of the largest magnitude of a line, from its bits, which are ordered as magnitudes are. A line of zeros
// has 0. The least is −113, of which 2^(14 − exponent) is a number.
fn line_exponent(magnitude: u32) -> i32 {
  return select(max(i32(magnitude >> 23u) - 127, -113), 0, magnitude == 0u);
}

// The number of a line with this exponent, scaled; NaN if the line has none.
fn scaled_number(x: f32, exponent: i32) -> f32 {
  return select(x * bitcast<f32>(u32(TOP - exponent + 127) << 23u), nan(), exponent == NO_EXPONENT);
}

// The first part of two numbers, and the second.
fn parts_of(x: vec2<f32>) -> vec2<u32> {
  let nearest = vec2<f32>(rounded(x.x), rounded(x.y));
  return vec2<u32>(pack2x16float(nearest), pack2x16float(x - nearest));
}

// The nearest number with the eleven bits that f16 has. In bits, because compilers take a conversion there
// and back for none at all.
fn rounded(x: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(x) + 0x1000u) & 0xffffe000u);
}
