// A number of each of the rows that share keys: here of one row.

alias Rows = f32;
alias RowsBits = u32;

const ROWS: u32 = 1u;

fn with_row(rows: Rows, row: u32, number: f32) -> Rows {
  return number;
}

fn row_of(rows: Rows, row: u32) -> f32 {
  return rows;
}

fn is_raised(raised: Rows, before: Rows) -> bool {
  return raised != before;
}

fn rows_bits(rows: Rows) -> RowsBits {
  return bitcast<RowsBits>(rows);
}

fn rows_scaled(products: Rows) -> Rows {
  return scaled(vec4<f32>(products)).x;
}
