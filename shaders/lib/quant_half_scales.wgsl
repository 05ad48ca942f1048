// The scales of formats with one for each half block, and super-blocks of 256 weights.
//
// needs: lib/quant_nibbles, lib/quant_zero_*, scales, extra, params with the planes

const HAS_MIN = false;

alias ScaleWords = vec2<u32>;

// The i8 scales of the eight half blocks of a unit, and the f16 scale of its super-block.
struct Scales {
  words: vec2<u32>,
  d: f32,
}

fn load_scales(row: u32, unit: u32) -> Scales {
  let d = extra[params.extra + row * params.extra_row + unit / 4u];
  let words = scales[params.scales + row * params.scales_row + unit];
  return Scales(words, half_of(unpack2x16float(d), unit / 2u));
}

fn scale_of(s: Scales, block: u32, j: u32) -> Scale {
  let byte = s.words[block / 2u] >> (16u * (block & 1u) + 8u * (j / 2u));
  let sc = (bitcast<i32>(byte) << 24u) >> 24u;
  return Scale(s.d * f32(sc), ZERO, 0.0);
}
