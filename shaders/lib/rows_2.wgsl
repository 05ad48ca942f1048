// A number of each of the rows that share keys: here of two rows.

alias Rows = vec2<f32>;
alias RowsBits = vec2<u32>;

const ROWS: u32 = 2u;

fn with_row(rows: Rows, row: u32, number: f32) -> Rows {
  return select(rows, Rows(number), vec2<u32>(0u, 1u) == vec2<u32>(row));
}

fn rows_scaled(products: Rows) -> Rows {
  return scaled(products.xyxy).xy;
}
