// y = (v − mean) / √(mean((v − mean)²) + eps) · weight + bias for each row v = x + residual, or, if not
// CENTRED, the same with 0 for the mean.
//
// A row group of invocations works on each row, which they hold in BLOCK vectors each: memory is read once.
// If SUMMED, v is written too; or results are added to what they are to be added to next.
//
// needs: T, W, CENTRED, INPUT, RESIDUAL, SUMMED, BLOCK, the vec of a vector, the rows of vectors, the weights
// of a column, the sum, the output

const NUMBERS = BLOCK * WIDTH;

// Whether weights are on their way while the row is reduced: a row of few elements waits for nothing else, and one of many
// has no registers for them.
const EARLY = NUMBERS <= 16u;
// Vectors whose weights an invocation holds at a time.
const HELD = select(1u, BLOCK, EARLY);

// The whole workgroup has to come here; `slot` is the row's number in it.
fn normalize(number: u32, slot: u32, lane: u32) {
  let row_group = params.row_group;
  // A row group without a row reads the last one.
  let index = min(number, params.rows - 1u);
  let rank = row_group_rank(lane, row_group, 1u);
  let row = row_at(rows_before() + index * params.length, params.length, number < params.rows);
  let last = max(row.vectors, 1u) - 1u;
  let n = f32(params.length);

  // All loads come first, so that all are on their way at once.
  var pairs: array<Pair, BLOCK>;
  for (var j = 0u; j < BLOCK; j++) {
    pairs[j] = fetch(row.first + min(rank + j * row_group, last));
  }
  var edge = 0.0;
  if has_edge(row, rank) {
    edge = edge_sum(fetch(edge_at(row, rank)), rank);
  }
  // Rows that aren't there read the first vector, which every row has.
  var affines: array<Affine, HELD>;
  if EARLY {
    for (var j = 0u; j < BLOCK; j++) {
      affines[j] = affine_of(index, min(rank + j * row_group, last));
    }
  }
  var block: array<f32, NUMBERS>;
  var sum = edge;
  for (var j = 0u; j < BLOCK; j++) {
    var numbers = sum_of(pairs[j]);
    let inside = rank + j * row_group < row.vectors;
    for (var l = 0u; l < WIDTH; l++) {
      block[j * WIDTH + l] = select(0.0, numbers[l], inside);
      sum += block[j * WIDTH + l];
    }
  }
  var mean = 0.0;
  if CENTRED == 1u {
    mean = row_group_reduce(SUM, lane, row_group, 1u, sum) / n;
  }

  var squares = 0.0;
  if has_edge(row, rank) {
    squares = (edge - mean) * (edge - mean);
  }
  for (var j = 0u; j < BLOCK; j++) {
    let inside = rank + j * row_group < row.vectors;
    for (var l = 0u; l < WIDTH; l++) {
      let deviation = select(0.0, block[j * WIDTH + l] - mean, inside);
      squares += deviation * deviation;
    }
  }
  let scale = inverseSqrt(row_group_reduce(SUM, lane, row_group, 1u, squares) / n + params.eps);

  for (var j = 0u; j < BLOCK; j++) {
    let column = rank + j * row_group;
    var numbers: array<A, WIDTH>;
    for (var l = 0u; l < WIDTH; l++) {
      numbers[l] = block[j * WIDTH + l];
    }
    if column < row.vectors {
      if SUMMED == 1u {
        store_sum(row.first + column, numbers);
      }
      if !EARLY {
        affines[0] = affine_of(index, column);
      }
      let affine = affines[select(0u, j, EARLY)];
      let result = normal(numbers, mean, scale, affine);
      y[params.y_offset + row.first + column] = result;
      add_result(row.first + column, result);
    }
  }
  if has_edge(row, rank) {
    keep_edge(slot, rank, edge_normal(edge, mean, scale, rank));
  }
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, invocation: Invocation) {
  let lane = index_of(invocation);
  let abreast = 256u / params.row_group;
  let count = abreast * rows_per_group();
  let first = flat_group(workgroup.id, workgroup.count) * count - rows_before();
  let place = row_group_index(lane, params.row_group, 1u);
  for (var nth = 0u; nth < rows_per_group(); nth++) {
    let slot = nth * abreast + place;
    normalize(first + slot, slot, lane);
  }
  store_seams(lane, first, count, params.rows, params.length);
}
