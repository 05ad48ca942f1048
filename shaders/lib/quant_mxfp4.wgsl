// Units of Mxfp4.
//
// needs: lib/quant_nibbles, lib/quant_nibble_words, scales, params with the planes

const HAS_MIN = false;

// Twice the values of numbers of E2M1 in the upper four bits of words. Behind the exponent of 1, the bits of a magnitude
// are a number x that is twice the value from 2 on; below, where E2M1 is subnormal, that is 2x − 2, as the smaller one is
// everywhere.
fn doubled(codes: vec4<u32>) -> vec4<f32> {
  let x = bitcast<vec4<f32>>(((codes >> vec4<u32>(6u)) & vec4<u32>(0x01c00000u)) + vec4<u32>(0x3f800000u));
  let magnitudes = bitcast<vec4<u32>>(min(x, 2.0 * x - 2.0));
  return bitcast<vec4<f32>>(magnitudes | (codes & vec4<u32>(0x80000000u)));
}

// The nibbles of a word lie in the order 0, 2, 4, 6, 1, 3, 5, 7.
fn eight(q: Quants, block: u32) -> Eight {
  let word = vec4<u32>(q.words[block]);
  return Eight(doubled(word << vec4<u32>(28u, 12u, 24u, 8u)), doubled(word << vec4<u32>(20u, 4u, 16u, 0u)));
}

alias ScaleWords = u32;

// The exponents of the four blocks of a unit, a byte each.
struct Scales {
  exponents: u32,
}

fn load_scales(row: u32, unit: u32) -> Scales {
  return Scales(scales[params.scales + row * params.scales_row + unit]);
}

// 2^(e − 128), which is subnormal where e is 0 or 1.
fn scale_of(s: Scales, block: u32, j: u32) -> Scale {
  let e = (s.exponents >> (8u * block)) & 255u;
  let bits = select((e - 1u) << 23u, 0x00200000u << (e & 1u), e < 2u);
  return Scale(bitcast<f32>(bits), 0.0, 0.0);
}
