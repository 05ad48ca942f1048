// The parts that pieces of the keys make of the rows: a reference and a sum of weights, two numbers that nobody
// reads, and a vector. attention/combine puts them together.
//
// needs: lib/attention, lib/attention_pieces, and one of lib/rows_*

@group(0) @binding(5) var<storage, read_write> parts: array<f32>;

// Writes a number of the rows' vectors.
fn write_number(tile: Tile, group: vec3<u32>, groups: vec3<u32>, number: u32, sums: Rows, totals: Rows) {
  var place = place_of(tile, tile.row);
  for (var r = 0u; r < ROWS; r++) {
    if tile.row + r < rows() && number < v_head_dim() {
      parts[part_of(tile, place, group.x, groups.x) + 4u + number] = row_of(sums, r);
    }
    place = next_place(tile, place);
  }
}

// Writes what the rows' vectors are relative to, and their sums of weights.
fn write_states(tile: Tile, group: vec3<u32>, groups: vec3<u32>, references: Rows, totals: Rows) {
  var place = place_of(tile, tile.row);
  for (var r = 0u; r < ROWS; r++) {
    if tile.row + r < rows() {
      let at = part_of(tile, place, group.x, groups.x);
      parts[at] = row_of(references, r);
      parts[at + 1u] = row_of(totals, r);
    }
    place = next_place(tile, place);
  }
}
