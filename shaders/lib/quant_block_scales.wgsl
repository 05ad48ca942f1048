// The scales of formats with one for each block.
//
// needs: lib/quant_nibbles, scales, params with the planes

// The f16 scales of the four blocks of a unit.
struct Scales {
  words: vec2<u32>,
}

fn load_scales(row: u32, unit: u32) -> Scales {
  let at = params.scales + row * params.scales_row + 2u * unit;
  return Scales(vec2<u32>(scales[at], scales[at + 1u]));
}
