// What lanes multiply that share COLUMNS_PER_GROUP rows of B, and their sums.
//
// needs: ROWS, COLUMNS_PER_GROUP

// Sums of ROWS rows of A, those of one row side by side.
alias Sums = array<f32, ROWS * COLUMNS_PER_GROUP>;

// Rows of B.
alias Lines = array<u32, COLUMNS_PER_GROUP>;

// Adjacent rows of B from one on. Beyond the last row, they are that one.
fn lines_from(column: u32) -> Lines {
  var lines: Lines;
  for (var x = 0u; x < COLUMNS_PER_GROUP; x++) {
    lines[x] = min(column + x, params.n - 1u);
  }
  return lines;
}
