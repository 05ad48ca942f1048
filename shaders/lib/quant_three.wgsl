// Quants of three bits.
//
// needs: lib/quant_nibbles, lib/quant_pairs, quants, high, params with the planes

// The low two bits of the words j of the four blocks of a unit, as lib/quant_pairs has them, and their third bits, a byte
// for each block.
struct Quants {
  words: vec4<u32>,
  high: u32,
}

fn load_quants(row: u32, unit: u32, j: u32) -> Quants {
  return Quants(load_pairs(row, unit, j), high[params.high + row * params.high_row + 4u * unit + j]);
}

fn eight(q: Quants, block: u32) -> Eight {
  let word = q.words[block];
  let bits = vec4<u32>(q.high >> (8u * block));
  let lo = first_pairs(word) | (((bits >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(2u));
  let hi = last_pairs(word) | (((bits >> vec4<u32>(4u, 5u, 6u, 7u)) & vec4<u32>(1u)) << vec4<u32>(2u));
  return Eight(vec4<f32>(lo), vec4<f32>(hi));
}
