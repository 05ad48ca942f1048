// Quants of four bits that are places in a table of 16 values, those of IQ4_NL and IQ4_XS.
//
// needs: lib/quant_nibbles, quants, params with the planes

// The words j of the four blocks of a unit.
struct Quants {
  words: vec4<u32>,
}

fn load_quants(row: u32, unit: u32, j: u32) -> Quants {
  return Quants(quants[params.quants + row * params.quants_row + 4u * unit + j]);
}

// Of these, only the word of one block.
fn load_block(row: u32, unit: u32, j: u32, block: u32) -> Quants {
  return Quants(vec4<u32>(quants[params.quants + row * params.quants_row + 4u * unit + j][block]));
}

// The values at these places: the whole numbers nearest to a polynomial, which is less than 0.44 from each.
fn values_at(places: vec4<u32>) -> vec4<f32> {
  let x = vec4<f32>(places) - 8.0;
  let y = fma(fma(x, vec4<f32>(0.00158604282), vec4<f32>(0.0818398097)), x, vec4<f32>(-0.0168120539));
  return round(fma(fma(y, x, vec4<f32>(11.4398097)), x, vec4<f32>(1.43298969)));
}

fn eight(q: Quants, block: u32) -> Eight {
  let word = q.words[block];
  return Eight(values_at(first_nibbles(word)), values_at(last_nibbles(word)));
}
