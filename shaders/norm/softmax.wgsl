// y = exp(x − m) / Σ exp(x − m) along an axis, m = max x, or its logarithm.
//
// A row group of invocations works on each slice, which they hold in BLOCK vectors each: memory is read once.
//
// needs: T, LOG, IN_PLACE, BLOCK, the vec of a vector, the rows of vectors

alias A = f32;
const NUMBERS = BLOCK * WIDTH;

fn fetch(i: u32) -> V {
  if IN_PLACE == 1u {
    return y[params.y_offset + i];
  }
  return x[params.x_offset + i];
}

// The result of a number: of itself, or of its exponential.
fn result(value: f32, m: f32, scale: f32) -> f32 {
  if LOG == 1u {
    return value - max(m, LOWEST) - scale;
  }
  return value * scale;
}

// The whole workgroup has to come here; `slot` is the slice's number in it.
fn softmax_slice(number: u32, slot: u32, lane: u32) {
  let row_group = params.row_group;
  let inner = params.inner;
  let rank = row_group_rank(lane, row_group, params.stride);
  // A row group without a slice reads the last one.
  let slice = min(number, params.slices - 1u);
  let start = rows_before() + slice / inner * params.length * inner + slice % inner;
  let row = row_at(start, params.length, number < params.slices);
  let last = max(row.vectors, 1u) - 1u;

  // All loads come first, so that all are on their way at once.
  var vectors: array<V, BLOCK>;
  for (var j = 0u; j < BLOCK; j++) {
    vectors[j] = fetch(row.first + min(rank + j * row_group, last) * inner);
  }
  var edge = -inf();
  if has_edge(row, rank) {
    edge = edge_of(fetch(edge_at(row, rank)), rank);
  }
  var block: array<f32, NUMBERS>;
  for (var j = 0u; j < BLOCK; j++) {
    let numbers = unpack(vectors[j]);
    for (var l = 0u; l < WIDTH; l++) {
      block[j * WIDTH + l] = select(-inf(), numbers[l], rank + j * row_group < row.vectors);
    }
  }

  // The largest number, and NaN if one is. Bits tell that in two steps for each number, max_nan takes many.
  var largest = edge;
  var bits = bitcast<u32>(edge) & 0x7fffffffu;
  for (var k = 0u; k < NUMBERS; k++) {
    largest = max(largest, block[k]);
    bits = max(bits, bitcast<u32>(block[k]) & 0x7fffffffu);
  }
  largest = select(largest, nan(), bits > 0x7f800000u);
  let m = row_group_reduce(MAX, lane, row_group, params.stride, largest);

  var sum = 0.0;
  if has_edge(row, rank) {
    sum = exp_below(edge, m);
    if LOG == 0u {
      edge = sum;
    }
  }
  for (var k = 0u; k < NUMBERS; k++) {
    let e = exp_below(block[k], m);
    sum += e;
    if LOG == 0u {
      block[k] = e;
    }
  }
  let total = row_group_reduce(SUM, lane, row_group, params.stride, sum);

  let scale = softmax_scale(m, total);
  for (var j = 0u; j < BLOCK; j++) {
    var numbers: array<A, WIDTH>;
    for (var l = 0u; l < WIDTH; l++) {
      numbers[l] = result(block[j * WIDTH + l], m, scale);
    }
    let at = rank + j * row_group;
    if at < row.vectors {
      y[params.y_offset + row.first + at * inner] = pack(numbers);
    }
  }
  if has_edge(row, rank) {
    keep_edge(slot, rank, result(edge, m, scale));
  }
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, invocation: Invocation) {
  let lane = index_of(invocation);
  let abreast = 256u / params.row_group;
  let count = abreast * rows_per_group();
  let first = flat_group(workgroup.id, workgroup.count) * count - rows_before();
  let place = row_group_index(lane, params.row_group, params.stride);
  for (var nth = 0u; nth < rows_per_group(); nth++) {
    let slot = nth * abreast + place;
    softmax_slice(first + slot, slot, lane);
  }
  store_seams(lane, first, count, params.slices, params.length);
}
