// Quants of four bits as numbers for fragments, exact in f16.
//
// needs: lib/quant_four, lib/quant_halves

// The first four quants of a word less a zero point, and the last four.
fn first_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block];
  return less(word & EVEN, word & ODD, f16(zero));
}

fn last_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block] >> 8u;
  return less(word & EVEN, word & ODD, f16(zero));
}
