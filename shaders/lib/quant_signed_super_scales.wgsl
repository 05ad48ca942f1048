// The scales of IQ4_XS, whose super-blocks have 256 weights.
//
// needs: lib/quant_nibbles, scales, params with the planes

const HAS_MIN = false;

alias ScaleWords = vec2<u32>;

// The f16 scale of a super-block, and of the four blocks of its unit the upper two and the low four bits of the scales.
struct Scales {
  d: f32,
  high: u32,
  low: u32,
}

fn load_scales(row: u32, unit: u32) -> Scales {
  let words = scales[params.scales + row * params.scales_row + unit / 2u];
  let second = unit & 1u;
  return Scales(unpack2x16float(words.x).x, words.x >> (16u + 8u * second), words.y >> (16u * second));
}

fn scale_of(s: Scales, block: u32, j: u32) -> Scale {
  let sc = ((s.low >> (4u * block)) & 15u) | (((s.high >> (2u * block)) & 3u) << 4u);
  return Scale(s.d * (f32(sc) - 32.0), 0.0, 0.0);
}
