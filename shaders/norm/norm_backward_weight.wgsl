// Sums over a part of the rows of dy · v for each column, v being the normalised row: parts of a weight's
// gradient. `moments` has of each row how many elements it has, their mean, and the sum of their squared deviations.
//
// An invocation iterates over the rows of one column, and a workgroup those of 256 neighbours.
//
// needs: T, CENTRED

// Rows that are summed before they are added to the rest, which keeps rounding errors small.
const RUN = 32u;

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let column = flat_group(workgroup.id, workgroup.count) * 256u + lane;
  if column >= params.columns {
    return;
  }
  let first = workgroup.id.z * params.chunk;
  let end = min(first + params.chunk, params.rows);
  let n = f32(params.columns);
  var total = 0.0;
  var run = 0.0;
  for (var row = first; row < end; row++) {
    let at = params.moments_offset + 3u * row;
    var mean = moments[at + 1u];
    var squares = moments[at + 2u] / n;
    if CENTRED == 0u {
      squares += mean * mean;
      mean = 0.0;
    }
    let scale = inverseSqrt(squares + params.eps);
    let i = row * params.columns + column;
    run += f32(dy[params.dy_offset + i]) * ((f32(x[params.x_offset + i]) - mean) * scale);
    if (row - first) % RUN == RUN - 1u {
      total += run;
      run = 0.0;
    }
  }
  sums[params.sums_offset + workgroup.id.z * params.columns + column] = total + run;
}
