// The scales of formats with one for each block.
//
// needs: lib/quant_nibbles, lib/quant_zero_*, scales, params with the planes

const HAS_MIN = false;

alias ScaleWords = vec2<u32>;

// The f16 scales of the four blocks of a unit.
struct Scales {
  words: vec2<u32>,
}

fn load_scales(row: u32, unit: u32) -> Scales {
  return Scales(scales[params.scales + row * params.scales_row + unit]);
}

fn scale_of(s: Scales, block: u32, j: u32) -> Scale {
  return Scale(half_of(unpack2x16float(s.words[block / 2u]), block), ZERO, 0.0);
}
