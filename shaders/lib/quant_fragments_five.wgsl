// Quants of five bits as numbers for fragments, exact in f16.
//
// needs: lib/quant_five, lib/quant_halves

// The fifth bits of a word's pairs of weights, the first of each pair in the lower half.
fn fifth_bits(q: Quants, block: u32) -> u32 {
  let bits = (q.high >> (8u * block)) & 0xffu;
  return bits | (bits << 15u);
}

// The first four quants of a word less a zero point, and the last four.
fn first_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block];
  let bits = fifth_bits(q, block);
  let even = (word & EVEN) | (((bits << 4u) & 0x00100010u) | kilo());
  let odd = (word & ODD) | (((bits << 6u) & 0x01000100u) | kilo());
  return kilo_less(even, odd, f16(zero));
}

fn last_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block] >> 8u;
  let bits = fifth_bits(q, block);
  let even = (word & EVEN) | ((bits & 0x00100010u) | kilo());
  let odd = (word & ODD) | (((bits << 2u) & 0x01000100u) | kilo());
  return kilo_less(even, odd, f16(zero));
}
