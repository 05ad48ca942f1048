// Which row of a table or cache a new row goes to, by an index on the device. Of new rows with equal indices, the last one
// wins. A workgroup searches for all of its rows together, so that each index is read once for all elements of a row.
//
// needs: indices, and of the parameters indices (its first element), count (new rows), rows (of the cache that are bound)
// and low (the first of them)

// Bits of the workgroup's rows whose place a later row takes.
var<workgroup> sh_replaced: array<atomic<u32>, 8>;

// Finds which of the rows first to last, which are no more than the workgroup's lanes, a later row takes the place of.
// Rows from params.count on have the indices of the first ones, in turn. Whoever calls has all lanes with it.
fn find_replaced(first: u32, last: u32, lane: u32, lanes: u32) {
  if params.count == 1u {
    return;
  }
  if lane < 8u {
    atomicStore(&sh_replaced[lane], 0u);
  }
  workgroupBarrier();
  let rows = last - first + 1u;
  let is_shared = rows * ((params.count + lanes - 1u) / lanes) <= params.count;
  // Either every lane looks at some of the later rows' indices for each row, or each has a row of its own.
  let begin = select(lane, 0u, is_shared);
  let end = select(min(lane + 1u, rows), rows, is_shared);
  let step = select(1u, lanes, is_shared);
  for (var r = begin; r < end; r++) {
    let i = (first + r) % params.count;
    let index = indices[params.indices + i];
    // What goes to a row that isn't bound is another launch's.
    if index - params.low >= params.rows {
      continue;
    }
    for (var later = i + 1u + select(0u, lane, is_shared); later < params.count; later += step) {
      if indices[params.indices + later] == index {
        atomicOr(&sh_replaced[r / 32u], 1u << (r % 32u));
        break;
      }
    }
  }
  workgroupBarrier();
}

// The row of the cache that row i becomes, which is row r of the workgroup's, or a number from params.rows on for none: the
// index is outside of what is bound, or a later row has it too.
fn indexed_row(i: u32, r: u32) -> u32 {
  if params.count > 1u && ((atomicLoad(&sh_replaced[r / 32u]) >> (r % 32u)) & 1u) == 1u {
    return params.rows;
  }
  // One before the first row that is bound wraps.
  return indices[params.indices + i] - params.low;
}
