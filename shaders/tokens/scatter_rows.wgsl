// table[o, indices[i], c] = combine(table[…], source[o, i, c]) for each i in turn. A workgroup owns 256
// elements of the table. It looks through the indices by 1024, notes those that name one of its rows as bits
// in workgroup memory, and every invocation takes them in order, so that the order is always the same.
//
// needs: T, S (elements of table and source), V (what they are combined as), arriving, combine

var<workgroup> hits: array<atomic<u32>, 32>;

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let start = params.first + flat_group(workgroup.id, workgroup.count) * 256u;
  if start >= params.elements {
    return;
  }
  // The workgroup's rows, which may go on in the next table.
  let last = min(start + 255u, params.elements - 1u) / params.columns;
  let low = (start / params.columns) % params.rows;
  let span = last - start / params.columns;

  let place = start + lane;
  let is_inside = place < params.elements;
  let number = place / params.columns;
  let outer = number / params.rows;
  let row = number - outer * params.rows;
  let first = outer * params.count * params.columns + (place - number * params.columns);
  var value = V();
  if is_inside {
    value = V(table[params.table + place]);
  }
  var is_named = false;

  for (var tile = 0u; tile < params.count; tile += 1024u) {
    if lane < 32u {
      atomicStore(&hits[lane], 0u);
    }
    workgroupBarrier();
    for (var k = 0u; k < 4u; k++) {
      let bit = k * 256u + lane;
      if tile + bit < params.count {
        let index = indices[params.indices + tile + bit];
        let beyond = select(index + params.rows - low, index - low, index >= low);
        if index < params.rows && beyond <= span {
          atomicOr(&hits[bit / 32u], 1u << (bit % 32u));
        }
      }
    }
    workgroupBarrier();
    for (var w = 0u; w < 32u; w++) {
      var bits = atomicLoad(&hits[w]);
      while bits != 0u {
        let i = tile + w * 32u + countTrailingZeros(bits);
        bits &= bits - 1u;
        if is_inside && indices[params.indices + i] == row {
          value = combine(value, arriving(source[params.source + first + i * params.columns]));
          is_named = true;
        }
      }
    }
    workgroupBarrier();
  }
  if is_named {
    table[params.table + place] = T(value);
  }
}
