// What the transposing copies share: where a tile lies.
//
// needs: nothing

struct Place {
  // Whether there is such a tile.
  exists: bool,
  row: u32,
  column: u32,
  // Of its first number.
  src: u32,
  dst: u32,
}

// Where the `flat`-th tile of side × side elements begins.
fn place_of(flat: u32, side: u32) -> Place {
  let across = (params.columns + side - 1u) / side;
  let down = (params.rows + side - 1u) / side;
  let column = flat % across * side;
  let row = flat / across % down * side;
  var rest = flat / (across * down);
  let exists = rest < params.batch;
  var src = params.src + row * params.src_row + column;
  var dst = params.dst + column * params.dst_column + row;
  for (var d = params.rank; d > 0u; d--) {
    let extent = params.loops[d - 1u];
    src += rest % extent.x * extent.y;
    dst += rest % extent.x * extent.z;
    rest /= extent.x;
  }
  return Place(exists, row, column, src, dst);
}
