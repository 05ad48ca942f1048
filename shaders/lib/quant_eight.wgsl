// Quants of eight bits, with a sign.
//
// needs: lib/quant_nibbles, quants, params with the planes

// The words j of the four blocks of a unit, each of eight bytes: those of two blocks side by side.
struct Quants {
  first: vec4<u32>,
  last: vec4<u32>,
}

fn load_quants(row: u32, unit: u32, j: u32) -> Quants {
  let at = params.quants + row * params.quants_row + 8u * unit + 2u * j;
  return Quants(quants[at], quants[at + 1u]);
}

// Of these, only the words of one block.
fn load_block(row: u32, unit: u32, j: u32, block: u32) -> Quants {
  let at = params.quants + row * params.quants_row + 8u * unit + 2u * j + block / 2u;
  let x = 2u * (block & 1u);
  let words = vec4<u32>(vec2<u32>(quants[at][x], quants[at][x + 1u]).xyxy);
  return Quants(words, words);
}

fn signed_bytes(word: u32) -> vec4<f32> {
  return vec4<f32>((vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

fn eight(q: Quants, block: u32) -> Eight {
  let two = select(q.first, q.last, block >= 2u);
  let words = select(two.xy, two.zw, (block & 1u) == 1u);
  return Eight(signed_bytes(words.x), signed_bytes(words.y));
}
