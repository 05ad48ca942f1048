// Words of eight quants of four bits, whatever numbers they stand for.
//
// needs: quants, params with the planes

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
