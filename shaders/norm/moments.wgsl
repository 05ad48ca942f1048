// The number of values, their mean and Σ(v − mean)² of each part of each row v = x + residual, or where rows aren't
// centred 0 and Σv², which an infinite v makes infinite. A workgroup takes a part.
//
// An invocation joins the moments of blocks of vectors (Chan, Golub and LeVeque, "Updating formulae and a
// pairwise algorithm for computing sample variances", 1979).
//
// needs: T, RESIDUAL, the vec of a vector

// The bit of `scaled` for rows that are not centred.
const ABOUT_ZERO = 4u;
const BLOCK = 4u;
const NUMBERS = BLOCK * WIDTH;

fn fetch(i: u32) -> Pair {
  var pair: Pair;
  pair.input = x[params.x_offset + i];
  if RESIDUAL == BOUND {
    pair.residual = residual[params.residual_offset + i];
  }
  return pair;
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let number = flat_group(workgroup.id, workgroup.count);
  let row = number / params.parts;
  let chunk = (params.columns + params.parts - 1u) / params.parts;
  let first = number % params.parts * chunk;
  // Behind the last row there is nothing.
  let end = select(0u, min(first + chunk, params.columns), row < params.rows);
  let start = row * params.columns;

  var count = 0.0;
  var mean = 0.0;
  var squares = 0.0;
  for (var k = first + lane; k < end; k += BLOCK * 256u) {
    var pairs: array<Pair, BLOCK>;
    for (var j = 0u; j < BLOCK; j++) {
      pairs[j] = fetch(start + min(k + j * 256u, end - 1u));
    }
    let vectors = min((end - k + 255u) / 256u, BLOCK);
    let n = f32(vectors * WIDTH);
    var block: array<f32, NUMBERS>;
    var sum = 0.0;
    for (var j = 0u; j < BLOCK; j++) {
      var numbers = sum_of(pairs[j]);
      for (var l = 0u; l < WIDTH; l++) {
        block[j * WIDTH + l] = numbers[l];
        sum += select(0.0, numbers[l], j < vectors);
      }
    }
    let block_mean = select(sum / n, 0.0, (params.scaled & ABOUT_ZERO) != 0u);
    var block_squares = 0.0;
    for (var j = 0u; j < BLOCK; j++) {
      for (var l = 0u; l < WIDTH; l++) {
        let deviation = select(0.0, block[j * WIDTH + l] - block_mean, j < vectors);
        block_squares += deviation * deviation;
      }
    }
    let share = n / (count + n);
    let difference = block_mean - mean;
    mean += difference * share;
    squares += block_squares + difference * difference * count * share;
    count += n;
  }

  let total = f32(max(end, first) - first) * f32(WIDTH);
  let total_mean = row_group_reduce(SUM, lane, 256u, 1u, mean * count) / max(total, 1.0);
  let difference = mean - total_mean;
  let total_squares = row_group_reduce(SUM, lane, 256u, 1u, squares + difference * difference * count);
  if lane == 0u && row < params.rows {
    let at = params.y_offset + 3u * number;
    moments[at] = total;
    moments[at + 1u] = total_mean;
    moments[at + 2u] = total_squares;
  }
}
