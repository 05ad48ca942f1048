// Parts of rows that share keys for lib/attention_fixup, a number of each row at a time.
//
// needs: lib/attention_fixup, one of lib/rows_*

// Writes a number of the rows' vectors.
fn write_number(tile: Tile, group: vec3<u32>, groups: vec3<u32>, number: u32, sums: Rows, references: Rows, totals: Rows) {
  for (var r = 0u; r < ROWS; r++) {
    if tile.row + r < rows() && number < v_head_dim() {
      put_number(group, groups, r, number, row_of(sums, r));
    }
  }
}

// Writes what the rows' vectors are relative to, and their sums of weights.
fn write_states(tile: Tile, group: vec3<u32>, groups: vec3<u32>, references: Rows, totals: Rows) {
  for (var r = 0u; r < ROWS; r++) {
    if tile.row + r < rows() {
      put_state(tile, group, groups, r, row_of(references, r), row_of(totals, r));
    }
  }
}
