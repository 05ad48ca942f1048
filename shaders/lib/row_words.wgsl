// Rows of f16 in words, which begin at any element.
//
// needs: params.length, params.rows_before

// The column of the first element of a row's whole word.
fn column_of(row: u32, word: u32) -> u32 {
  return 2u * word + ((params.rows_before + row * params.length) & 1u);
}
