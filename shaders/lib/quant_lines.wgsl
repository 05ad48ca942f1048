// What lanes multiply that share SPAN rows of B, and their sums.
//
// needs: ROWS, SPAN

// Sums of ROWS rows of A, those of one row side by side.
alias Sums = array<f32, ROWS * SPAN>;

// Rows of B.
alias Lines = array<u32, SPAN>;

// Adjacent rows of B from one on. Beyond the last row, they are that one.
fn lines_from(column: u32) -> Lines {
  var lines: Lines;
  for (var x = 0u; x < SPAN; x++) {
    lines[x] = min(column + x, params.n - 1u);
  }
  return lines;
}
