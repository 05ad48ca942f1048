// Quants of two bits.
//
// needs: lib/quant_nibbles, lib/quant_pairs, quants, params with the planes

// The words j of the four blocks of a unit, as lib/quant_pairs has them.
struct Quants {
  words: vec4<u32>,
}

fn load_quants(row: u32, unit: u32, j: u32) -> Quants {
  return Quants(load_pairs(row, unit, j));
}

fn eight(q: Quants, block: u32) -> Eight {
  let word = q.words[block];
  return Eight(vec4<f32>(first_pairs(word)), vec4<f32>(last_pairs(word)));
}
