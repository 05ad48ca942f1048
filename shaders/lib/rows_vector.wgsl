// A number of each of the rows that share keys, in a vector: for rows_2 and rows_4.

fn row_of(rows: Rows, row: u32) -> f32 {
  return rows[row];
}

fn is_raised(raised: Rows, before: Rows) -> bool {
  return any(raised != before);
}

fn rows_bits(rows: Rows) -> RowsBits {
  return bitcast<RowsBits>(rows);
}
