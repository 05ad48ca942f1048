// Which row of a cache a new row goes to, by an index on the device.
//
// needs: indices, and of the parameters indices (its first element), count (new rows), rows (of the cache that are bound)
// and low (the first of them)

// The row of the cache that row i becomes, or a number from params.rows on for none: the index is outside of what is
// bound, or a later row has it too.
fn indexed_row(i: u32) -> u32 {
  let index = indices[params.indices + i];
  for (var later = i + 1u; later < params.count; later++) {
    if indices[params.indices + later] == index {
      return params.rows;
    }
  }
  // One before the first row that is bound wraps.
  return index - params.low;
}
