// table[o, indices[i], c] = combine(table[…], source[o, i, c]) for each i in turn: one invocation for each element of the
// source, for few rows of a large table. Of the rows that go to one place, the first combines all, in their order. A
// workgroup has 256 elements of at most five rows. For each of these it notes the rows with an equal index as bits in
// workgroup memory, so that each index is read once for all elements of a row.
//
// needs: T, S (elements of table and source), V (what they are combined as), arriving, combine, lib/grid

// Rows of a workgroup, which have 64 elements or more, and words with a bit for each of 4096 indices.
const ROWS: u32 = 5u;
const WORDS: u32 = 128u;

var<workgroup> equal: array<atomic<u32>, ROWS * WORDS>;
var<workgroup> earliest: array<atomic<u32>, ROWS>;
var<workgroup> latest: array<atomic<u32>, ROWS>;

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let start = params.first + flat_group(workgroup.id, workgroup.count) * 256u;
  if start >= params.elements {
    return;
  }
  // The workgroup's rows of the source, counted through all tables.
  let first = start / params.columns;
  let rows = min(start + 255u, params.elements - 1u) / params.columns - first + 1u;
  for (var word = lane; word < rows * WORDS; word += 256u) {
    atomicStore(&equal[word], 0u);
  }
  if lane < ROWS {
    atomicStore(&earliest[lane], params.count);
    atomicStore(&latest[lane], 0u);
  }
  workgroupBarrier();
  for (var r = 0u; r < rows; r++) {
    let index = indices[params.indices + (first + r) % params.count];
    // What goes to a row that isn't bound is another launch's.
    if index - params.low >= params.rows {
      continue;
    }
    for (var k = lane; k < params.count; k += 256u) {
      if indices[params.indices + k] == index {
        atomicOr(&equal[r * WORDS + k / 32u], 1u << (k % 32u));
        atomicMin(&earliest[r], k);
        atomicMax(&latest[r], k);
      }
    }
  }
  workgroupBarrier();

  let at = start + lane;
  if at >= params.elements {
    return;
  }
  let number = at / params.columns;
  let column = at - number * params.columns;
  let outer = number / params.count;
  let i = number - outer * params.count;
  let r = number - first;
  // Of a row that goes elsewhere, none is the earliest.
  if atomicLoad(&earliest[r]) != i {
    return;
  }
  let row = indices[params.indices + i] - params.low;
  let place = params.table + (outer * params.rows + row) * params.columns + column;
  let arriving_from = params.source + outer * params.count * params.columns + column;
  var value = V(table[place]);
  let last_word = atomicLoad(&latest[r]) / 32u;
  for (var word = i / 32u; word <= last_word; word++) {
    var bits = atomicLoad(&equal[r * WORDS + word]);
    while bits != 0u {
      let k = word * 32u + countTrailingZeros(bits);
      bits &= bits - 1u;
      value = combine(value, arriving(source[arriving_from + k * params.columns]));
    }
  }
  table[place] = T(value);
}
