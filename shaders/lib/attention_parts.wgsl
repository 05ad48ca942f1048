// The parts that pieces of the keys make of the rows: a reference, a sum of weights, the head's sink, a number that
// nobody reads, and a vector. attention/combine puts them together.
//
// needs: lib/attention, lib/attention_pieces, lib/attention_sinks, and one of lib/rows_*

@group(0) @binding(6) var<storage, read_write> parts: array<f32>;

// Writes a number of the rows' vectors.
fn write_number(tile: Tile, group: vec3<u32>, groups: vec3<u32>, number: u32, sums: Rows, references: Rows, totals: Rows) {
  var place = place_of(tile, tile.row);
  for (var r = 0u; r < ROWS; r++) {
    if tile.row + r < rows() && number < v_head_dim() {
      parts[part_of(tile, place, group.x, groups.x) + 4u + number] = row_of(sums, r);
    }
    place = next_place(tile, place);
  }
}

// Writes what the rows' vectors are relative to, their sums of weights, and the sinks of their heads.
fn write_states(tile: Tile, group: vec3<u32>, groups: vec3<u32>, references: Rows, totals: Rows) {
  var place = place_of(tile, tile.row);
  for (var r = 0u; r < ROWS; r++) {
    if tile.row + r < rows() {
      let at = part_of(tile, place, group.x, groups.x);
      parts[at] = row_of(references, r);
      parts[at + 1u] = row_of(totals, r);
      parts[at + 2u] = sink_of(place.x);
    }
    place = next_place(tile, place);
  }
}

// Nothing is left to do: attention/combine reads the parts.
fn finish(tile: Tile, index: u32, group: vec3<u32>, groups: vec3<u32>) {}
