// table[o, indices[o, i, c], c] = combine(table[…], source[o, i, c]) for each i in turn. Each element of the
// table looks through the indices of its column, so that the order is always the same.
//
// needs: T, S (elements of table and source), V (what they are combined as), arriving, combine

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let place = params.first + flat_group(workgroup.id, workgroup.count) * 256u + lane;
  if place >= params.elements {
    return;
  }
  let number = place / params.columns;
  let outer = number / params.rows;
  let row = number - outer * params.rows;
  // The column's first element in indices and source.
  let first = outer * params.count * params.columns + (place - number * params.columns);
  var value = V(table[params.table + place]);
  var is_named = false;
  for (var i = 0u; i < params.count; i++) {
    let at = first + i * params.columns;
    if indices[params.indices + at] == row {
      value = combine(value, arriving(source[params.source + at]));
      is_named = true;
    }
  }
  if is_named {
    table[params.table + place] = T(value);
  }
}
