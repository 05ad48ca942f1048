// Rows of A that are multiplied as they lie in memory.
//
// needs: a, lib/quant_residual

fn prepare_rows(index: u32) {}

// Eight elements of a row from the column k on.
fn eight_of_row(row: u32, k: u32) -> vec4<u32> {
  return a[(params.a + row * params.a_ld + k) / 8u];
}
