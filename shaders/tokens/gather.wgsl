// output[o, i, :] = table[o, indices[i], :], or with an index for each element output[o, i, c] = table[o,
// indices[o, i, c], c]; zeros for an index outside the table, to which a negative one belongs because it
// counts as a large unsigned number. An element is VEC_WIDTH numbers side by side, and rows are counted in
// elements.
//
// needs: TN (an element), PER_ELEMENT, lib/invocation_outputs

fn make_output(i: u32) {
  let number = i / params.columns;
  let outer = number / params.count;
  let which = select(number - outer * params.count, i, PER_ELEMENT == 1u);
  let index = indices[params.indices + which];
  // An index below the first row wraps, and its row isn't bound either.
  let row = index - params.first;
  let is_bound = row < params.rows;
  // What lies in rows that aren't bound is another launch's; zeros are the first one's.
  if !is_bound && (params.first > 0u || index < params.all_rows) {
    return;
  }
  var value = TN();
  if is_bound {
    value = table[params.table + (outer * params.rows + row) * params.columns + (i - number * params.columns)];
  }
  output[params.output + i] = value;
}
