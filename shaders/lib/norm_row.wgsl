// The row of a normalisation, as a team of invocations reads and writes it. The kernel has the bindings x, residual and
// y of T, and says with INPUT and RESIDUAL where these are: ABSENT, BOUND, or exactly the OUTPUT.

const ABSENT = 0u;
const BOUND = 1u;
const OUTPUT = 2u;

struct Row {
  // Index of the first number.
  x: u32,
  residual: u32,
  y: u32,
  // Numbers in it; 0 for a team that has no row.
  columns: u32,
}

// The row of a team.
fn row_of(number: u32) -> Row {
  let start = number * params.columns;
  return Row(
    params.x_offset + start,
    params.residual_offset + start,
    params.y_offset + start,
    select(0u, params.columns, number < params.rows),
  );
}

// input + residual.
fn load(row: Row, column: u32) -> f32 {
  var sum = 0.0;
  if INPUT == OUTPUT {
    sum = f32(y[row.y + column]);
  } else {
    sum = f32(x[row.x + column]);
  }
  if RESIDUAL == OUTPUT {
    sum += f32(y[row.y + column]);
  } else if RESIDUAL == BOUND {
    sum += f32(residual[row.residual + column]);
  }
  return sum;
}

// BLOCK numbers, from a column on, a team's size apart; 0 past the end.
fn load_block(row: Row, column: u32) -> array<f32, BLOCK> {
  var block: array<f32, BLOCK>;
  for (var j = 0u; j < BLOCK; j++) {
    block[j] = 0.0;
    if column + j * params.team < row.columns {
      block[j] = load(row, column + j * params.team);
    }
  }
  return block;
}
