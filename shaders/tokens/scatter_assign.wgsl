// table[o, indices[o, i, c], c] = source[o, i, c] for each i, unless a later index names the same place: one
// invocation for each element of the source, for few rows of a large table.
//
// needs: T, S (elements of table and source), V, arriving, PER_ELEMENT

@group(0) @binding(0) var<storage, read> indices: array<u32>;
@group(0) @binding(1) var<storage, read> source: array<S>;
@group(0) @binding(2) var<storage, read_write> table: array<T>;

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let at = params.first + flat_group(workgroup.id, workgroup.count) * 256u + lane;
  if at >= params.elements {
    return;
  }
  let number = at / params.columns;
  let column = at - number * params.columns;
  let outer = number / params.count;
  let i = number - outer * params.count;
  // The first index of this column, and the distance to the next.
  var first = params.indices;
  var step = 1u;
  if PER_ELEMENT == 1u {
    first += outer * params.count * params.columns + column;
    step = params.columns;
  }
  let index = indices[first + i * step];
  // An index below the first row that is bound wraps, and its place isn't bound either.
  let row = index - params.low;
  if row >= params.rows {
    return;
  }
  for (var later = i + 1u; later < params.count; later++) {
    if indices[first + later * step] == index {
      return;
    }
  }
  table[params.table + (outer * params.rows + row) * params.columns + column] =
    T(arriving(source[params.source + at]));
}
