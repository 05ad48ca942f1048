// Rows of A that are multiplied as they lie in memory.
//
// needs: a

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
