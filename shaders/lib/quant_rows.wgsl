// Rows of A that are multiplied as they lie in memory.
//
// needs: a, ROWS, FetchedRow

// Whether rows are in workgroup memory.
const ROWS_STAGED = false;

struct HeldRows {
  none: u32,
}

fn load_rows(index: u32) -> HeldRows {
  return HeldRows();
}

fn prepare_rows(index: u32, held: HeldRows) {}

// The vector `i` of eight elements of a row.
fn eight_of_row(row: u32, i: u32) -> vec4<u32> {
  return a[params.a / 8u + row * (params.a_ld / 8u) + i];
}

// With the unit's weights where there is one row for an invocation: waiting for A by itself took up to 7 % of a product's
// time.
fn fetch_row(row: u32, i: u32) -> FetchedRow {
  if ROWS == 16u {
    return FetchedRow();
  }
  return FetchedRow(
    eight_of_row(row, i),
    eight_of_row(row, i + 4u),
    eight_of_row(row, i + 8u),
    eight_of_row(row, i + 12u),
  );
}

fn eight_of_fetched_row(fetched: vec4<u32>, row: u32, i: u32) -> vec4<u32> {
  if ROWS == 16u {
    return eight_of_row(row, i);
  }
  return fetched;
}
