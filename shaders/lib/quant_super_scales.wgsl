// The scales and minima of formats with super-blocks of 256 weights.
//
// needs: lib/quant_nibbles, scales, params with the planes

const HAS_MIN = true;

// The f16 scales of a super-block, and the 6-bit scales and minima of the four blocks of its unit.
struct Scales {
  d: vec2<f32>,
  scales: u32,
  mins: u32,
}

fn load_scales(row: u32, unit: u32) -> Scales {
  let at = params.scales + row * params.scales_row + 4u * (unit / 2u);
  let s = vec3<u32>(scales[at + 1u], scales[at + 2u], scales[at + 3u]);
  let d = unpack2x16float(scales[at]);
  if (unit & 1u) == 0u {
    return Scales(d, s.x & 0x3f3f3f3fu, s.y & 0x3f3f3f3fu);
  }
  // The upper two bits lie above the six of the first unit.
  let sc = (s.z & 0x0f0f0f0fu) | ((s.x >> 2u) & 0x30303030u);
  let m = ((s.z >> 4u) & 0x0f0f0f0fu) | ((s.y >> 2u) & 0x30303030u);
  return Scales(d, sc, m);
}

fn scale_of(s: Scales, block: u32, j: u32) -> Scale {
  let sc = f32((s.scales >> (8u * block)) & 63u);
  let m = f32((s.mins >> (8u * block)) & 63u);
  return Scale(s.d.x * sc, 0.0, s.d.y * m);
}
