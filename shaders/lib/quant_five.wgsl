// Quants of five bits.
//
// needs: lib/quant_nibbles, quants, high, params with the planes

// The low nibbles of the words j of the four blocks of a unit, and their fifth bits, a byte for each block.
struct Quants {
  words: vec4<u32>,
  high: u32,
}

fn load_quants(row: u32, unit: u32, j: u32) -> Quants {
  let low = quants[params.quants + row * params.quants_row + 4u * unit + j];
  return Quants(low, high[params.high + row * params.high_row + 4u * unit + j]);
}

// Of these, only the low nibbles of one block.
fn load_block(row: u32, unit: u32, j: u32, block: u32) -> Quants {
  let low = quants[params.quants + row * params.quants_row + 4u * unit + j][block];
  return Quants(vec4<u32>(low), high[params.high + row * params.high_row + 4u * unit + j]);
}

fn eight(q: Quants, block: u32) -> Eight {
  let word = q.words[block];
  let bits = vec4<u32>(q.high >> (8u * block));
  let lo = first_nibbles(word) | (((bits >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(4u));
  let hi = last_nibbles(word) | (((bits >> vec4<u32>(4u, 5u, 6u, 7u)) & vec4<u32>(1u)) << vec4<u32>(4u));
  return Eight(vec4<f32>(lo), vec4<f32>(hi));
}
