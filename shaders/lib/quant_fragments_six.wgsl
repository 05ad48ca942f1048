// Quants of six bits as numbers for fragments, exact in f16.
//
// needs: lib/quant_six, lib/quant_halves

// The upper bits of a word's pairs of weights, the first of each pair in the lower half.
fn upper_bits(q: Quants, block: u32) -> u32 {
  let bits = (q.high[block / 2u] >> (16u * (block & 1u))) & 0xffffu;
  return bits | (bits << 14u);
}

// The first four quants of a word less a zero point, and the last four.
fn first_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block];
  let bits = upper_bits(q, block) << 4u;
  let even = (word & EVEN) | ((bits & 0x00300030u) | kilo());
  return kilo_less(even, (word & ODD) | ((bits & 0x03000300u) | kilo()), f16(zero));
}

fn last_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block] >> 8u;
  let bits = upper_bits(q, block) >> 4u;
  let even = (word & EVEN) | ((bits & 0x00300030u) | kilo());
  return kilo_less(even, (word & ODD) | ((bits & 0x03000300u) | kilo()), f16(zero));
}
