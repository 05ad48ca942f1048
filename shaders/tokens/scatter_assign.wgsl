// table[o, indices[o, i, c], c] = source[o, i, c] for each i, unless a later index names the same place: one
// invocation for each element of the source, for few rows of a large table.
//
// needs: T, S (elements of table and source), V, arriving, PER_ELEMENT, lib/grid, lib/indexed_row

// The row of the table that a single element goes to, or a number from params.rows on for none. `first` is the first
// index of its column.
fn element_row(first: u32, i: u32) -> u32 {
  let index = indices[first + i * params.columns];
  // An index below the first row that is bound wraps, and its place isn't bound either.
  let row = index - params.low;
  if row < params.rows {
    for (var later = i + 1u; later < params.count; later++) {
      if indices[first + later * params.columns] == index {
        return params.rows;
      }
    }
  }
  return row;
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let start = params.first + flat_group(workgroup.id, workgroup.count) * 256u;
  if start >= params.elements {
    return;
  }
  // The workgroup's first row of the source, counted through all tables.
  let first = start / params.columns;
  if PER_ELEMENT == 0u {
    let last = min(start + 255u, params.elements - 1u) / params.columns;
    find_replaced(first, last, lane, 256u);
  }
  let at = start + lane;
  if at >= params.elements {
    return;
  }
  let number = at / params.columns;
  let column = at - number * params.columns;
  let outer = number / params.count;
  let i = number - outer * params.count;
  var row = 0u;
  if PER_ELEMENT == 1u {
    row = element_row(params.indices + outer * params.count * params.columns + column, i);
  } else {
    row = indexed_row(i, number - first);
  }
  if row >= params.rows {
    return;
  }
  table[params.table + (outer * params.rows + row) * params.columns + column] =
    T(arriving(source[params.source + at]));
}
