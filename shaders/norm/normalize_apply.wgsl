// y = (v − mean) · scale · weight + bias for each row v = x + residual, with what shaders/norm/moments.wgsl
// has found. If SUMMED, v is written too.
//
// needs: T, W, CENTRED, INPUT, RESIDUAL, SUMMED, the vec of a vector, the weights of a column, the sum, the
// output

// Vectors of an invocation.
const AHEAD = 4u;

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let chunk = 256u * AHEAD;
  let chunks = (params.columns + chunk - 1u) / chunk;
  let number = flat_group(workgroup.id, workgroup.count);
  let row = number / chunks;
  if row >= params.rows {
    return;
  }
  let first = number % chunks * chunk + lane;
  let start = row * params.columns;
  var pairs: array<Pair, AHEAD>;
  for (var j = 0u; j < AHEAD; j++) {
    pairs[j] = fetch(start + min(first + j * 256u, params.columns - 1u));
  }

  // The mean of all parts first: their sums of squares then need no more than a shift.
  let n = f32(params.columns * WIDTH);
  var mean = 0.0;
  if CENTRED == 1u {
    for (var k = 0u; k < params.parts; k++) {
      let at = 3u * (row * params.parts + k);
      mean += moments[at] * moments[at + 1u];
    }
    mean /= n;
  }
  var squares = 0.0;
  for (var k = 0u; k < params.parts; k++) {
    let at = 3u * (row * params.parts + k);
    let difference = moments[at + 1u] - mean;
    squares += moments[at + 2u] + difference * difference * moments[at];
  }
  let scale = inverseSqrt(squares / n + params.eps);

  for (var j = 0u; j < AHEAD; j++) {
    let column = first + j * 256u;
    if column < params.columns {
      let numbers = sum_of(pairs[j]);
      if SUMMED == 1u {
        store_sum(start + column, numbers);
      }
      y[params.y_offset + start + column] = normal(numbers, mean, scale, affine_of(row, column));
    }
  }
}
