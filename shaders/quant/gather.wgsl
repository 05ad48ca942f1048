// output[i, :] = table[indices[i], :] of a quantised table, or all its rows in their order; zeros for an index
// outside the table, to which a negative one belongs because it counts as a large unsigned number. An
// invocation makes eight elements, a word.
//
// needs: T, INDEXED, a format, lib/quant_output_1 or lib/quant_output_4, lib/invocation_outputs

fn make_output(i: u32) {
  let number = i / params.words;
  let word = i - number * params.words;
  let unit = word / 16u;
  let block = word / 4u % 4u;
  let j = word % 4u;
  var row = number;
  var w = Eight();
  if INDEXED == 1u {
    row = indices[params.indices + number];
    // What lies in rows that aren't bound is another launch's; zeros are the first one's.
    let outside = row >= params.rows_of_all;
    let bound_row = row >= params.first && row - params.first < params.rows;
    if select(!bound_row, params.first > 0u, outside) {
      return;
    }
    row = select(row - params.first, params.rows, outside);
  }
  if row < params.rows {
    w = weights_of(eight(load_quants(row, unit, j), block), scale_of(load_scales(row, unit), block, j));
  }
  let column = 8u * word;
  write_word(w, params.output + number * params.ld + column, params.columns - column);
}
