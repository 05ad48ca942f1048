// Merges runs of sorted entries two by two, one invocation for each entry of the result, which finds where the
// runs are cut before it (the merge path of O. Green, R. McColl and D. A. Bader, 2012). What is beyond the
// entries that are kept isn't merged.
//
// needs: INDICES (whether only the entries' indices are written), lib/invocation_outputs

fn entry(i: u32) -> vec2<u32> {
  return vec2<u32>(x[params.x + 2u * i], x[params.x + 2u * i + 1u]);
}

fn make_output(place: u32) {
  let row = place / params.row_kept;
  let column = place - row * params.row_kept;
  let pair = column / params.merged;
  let rank = column - pair * params.merged;
  // The two runs, of which the second may be shorter or missing.
  let start = pair * 2u * params.run;
  let left = row * params.columns + start;
  let right = left + params.run;
  let left_count = min(params.run, params.columns - start);
  let right_count = min(params.run, params.columns - start - left_count);
  // How many of the entries before are of the left run.
  var low = rank - min(rank, right_count);
  var high = min(rank, left_count);
  while low < high {
    let middle = (low + high) / 2u;
    if precedes(entry(left + middle), entry(right + rank - 1u - middle)) {
      low = middle + 1u;
    } else {
      high = middle;
    }
  }
  var from_left = low < left_count;
  if from_left && rank - low < right_count {
    from_left = precedes(entry(left + low), entry(right + rank - low));
  }
  store(params.y, place, entry(select(right + rank - low, left + low, from_left)));
}
