// The `k` largest or smallest numbers of rows of at most MOST, in order, or with SOFTMAX their probabilities.
//
// needs: X, SOFTMAX, a lib/sort_from_*, lib/row_top_k

fn number_at(row: u32, column: u32) -> f32 {
  return f32(x[params.x + row * params.columns + column]);
}

fn write_found(row: u32, place: u32, column: u32) {
  if (params.writes & 1u) != 0u {
    indices[params.indices + row * params.k + place] = column;
  }
  if (params.writes & 2u) != 0u {
    let number = x[params.x + row * params.columns + column];
    let at = params.values + row * params.k + place;
    if SOFTMAX > 0u {
      values[at] = X(probability(f32(number)));
    } else {
      values[at] = number;
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let row = flat_group(workgroup.id, workgroup.count);
  if row >= params.rows {
    return;
  }
  for (var column = lane; column < params.columns; column += THREADS) {
    keys[column] = load(params.x, row * params.columns + column, column).x;
  }
  workgroupBarrier();
  find(row, lane);
}
