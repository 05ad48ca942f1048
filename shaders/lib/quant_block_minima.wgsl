// The scales and minima of formats with one of each for each block. The minima are added.
//
// needs: lib/quant_nibbles, scales, params with the planes

const HAS_MIN = true;

alias ScaleWords = vec4<u32>;

// The f16 scale and minimum of each of the four blocks of a unit.
struct Scales {
  words: vec4<u32>,
}

fn load_scales(row: u32, unit: u32) -> Scales {
  return Scales(scales[params.scales + row * params.scales_row + unit]);
}

fn scale_of(s: Scales, block: u32, j: u32) -> Scale {
  let both = unpack2x16float(s.words[block]);
  return Scale(both.x, 0.0, -both.y);
}
