// The scales and minima of Q2_K, which each half block has, and super-blocks of 256 weights.
//
// needs: lib/quant_nibbles, scales, extra, params with the planes

const HAS_MIN = true;

alias ScaleWords = vec2<u32>;

// The 4-bit scales and minima of the eight half blocks of a unit, and what those of its super-block are multiplied by.
struct Scales {
  words: vec2<u32>,
  d: vec2<f32>,
}

fn load_scales(row: u32, unit: u32) -> Scales {
  let d = unpack2x16float(extra[params.extra + row * params.extra_row + unit / 2u]);
  return Scales(scales[params.scales + row * params.scales_row + unit], d);
}

fn scale_of(s: Scales, block: u32, j: u32) -> Scale {
  let byte = s.words[block / 2u] >> (16u * (block & 1u) + 8u * (j / 2u));
  return Scale(s.d.x * f32(byte & 15u), 0.0, s.d.y * f32((byte >> 4u) & 15u));
}
