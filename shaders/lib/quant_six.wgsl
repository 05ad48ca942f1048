// Quants of six bits.
//
// needs: lib/quant_nibbles, quants, high, params with the planes

// The low nibbles of the words j of the four blocks of a unit, and their upper two bits, 16 bits for each
// block.
struct Quants {
  words: vec4<u32>,
  high: vec2<u32>,
}

fn load_quants(row: u32, unit: u32, j: u32) -> Quants {
  let low = quants[params.quants + row * params.quants_row + 4u * unit + j];
  let at = params.high + row * params.high_row + 8u * unit + 2u * j;
  return Quants(low, vec2<u32>(high[at], high[at + 1u]));
}

fn eight(q: Quants, block: u32) -> Eight {
  let word = q.words[block];
  let bits = vec4<u32>(q.high[block / 2u] >> (16u * (block & 1u)));
  let lo = first_nibbles(word) | (((bits >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(3u)) << vec4<u32>(4u));
  let hi = last_nibbles(word) | (((bits >> vec4<u32>(8u, 10u, 12u, 14u)) & vec4<u32>(3u)) << vec4<u32>(4u));
  return Eight(vec4<f32>(lo), vec4<f32>(hi));
}
