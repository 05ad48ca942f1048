// Quants of three bits as numbers for fragments, exact in f16.
//
// needs: lib/quant_three, lib/quant_halves

// The third bits of a word's pairs of weights, the first of each pair in the lower half.
fn third_bits(q: Quants, block: u32) -> u32 {
  let bits = (q.high >> (8u * block)) & 0xffu;
  return bits | (bits << 15u);
}

// The first four quants of a word less a zero point, and the last four.
fn first_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block];
  let bits = third_bits(q, block);
  let even = (word & 0x00030003u) | (((bits << 2u) & 0x00040004u) | kilo());
  let odd = ((word << 2u) & 0x00300030u) | (((bits << 4u) & 0x00400040u) | kilo());
  return kilo_less(even, odd, f16(zero));
}

fn last_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block];
  let bits = third_bits(q, block);
  let even = ((word >> 4u) & 0x00030003u) | (((bits >> 2u) & 0x00040004u) | kilo());
  let odd = ((word >> 2u) & 0x00300030u) | ((bits & 0x00400040u) | kilo());
  return kilo_less(even, odd, f16(zero));
}
