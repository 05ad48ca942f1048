// Rows of A that are multiplied as they lie in memory.
//
// needs: a, ROWS, FetchedRow, lib/quant_residual

struct HeldRows {
  none: u32,
}

fn load_rows(index: u32) -> HeldRows {
  return HeldRows();
}

fn prepare_rows(index: u32, held: HeldRows) {}

// Eight elements of a row from the column k on.
fn eight_of_row(row: u32, k: u32) -> vec4<u32> {
  return a[(params.a + row * params.a_ld + k) / 8u];
}

// With the unit's weights where there is one row for an invocation: waiting for A by itself took up to 7 % of a product's
// time.
fn fetch_row(row: u32, k: u32) -> FetchedRow {
  if ROWS == 16u {
    return FetchedRow();
  }
  return FetchedRow(
    eight_of_row(row, k),
    eight_of_row(row, k + 32u),
    eight_of_row(row, k + 64u),
    eight_of_row(row, k + 96u),
  );
}

fn eight_of_fetched_row(fetched: vec4<u32>, row: u32, k: u32) -> vec4<u32> {
  if ROWS == 16u {
    return eight_of_row(row, k);
  }
  return fetched;
}
