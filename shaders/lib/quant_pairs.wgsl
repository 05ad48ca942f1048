// Pairs of bits of eight quants: of the weights 0, 2, 4 and 6 in bits 0 to 7 of a word, of 1, 3, 5 and 7 in bits 16 to 23.
//
// needs: quants, params with the planes

// The words j of the four blocks of a unit. Those of an even j and of the next share a vector; in the other bits of a
// result is what belongs to the other one.
fn load_pairs(row: u32, unit: u32, j: u32) -> vec4<u32> {
  let both = quants[params.quants + row * params.quants_row + 2u * unit + j / 2u];
  return both >> vec4<u32>(8u * (j & 1u));
}

fn first_pairs(word: u32) -> vec4<u32> {
  return (vec4<u32>(word) >> vec4<u32>(0u, 16u, 2u, 18u)) & vec4<u32>(3u);
}

fn last_pairs(word: u32) -> vec4<u32> {
  return (vec4<u32>(word) >> vec4<u32>(4u, 20u, 6u, 22u)) & vec4<u32>(3u);
}
