// A number of each of the rows that share keys: here of four rows.

alias Rows = vec4<f32>;
alias RowsBits = vec4<u32>;

const ROWS: u32 = 4u;

fn with_row(rows: Rows, row: u32, number: f32) -> Rows {
  return select(rows, Rows(number), vec4<u32>(0u, 1u, 2u, 3u) == vec4<u32>(row));
}

fn rows_scaled(products: Rows) -> Rows {
  return scaled(products);
}
