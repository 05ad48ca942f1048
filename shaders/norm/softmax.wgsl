// y = exp(x − m) / Σ exp(x − m) along an axis, m = max x, or its logarithm.
//
// A row group of invocations works on each slice, which they hold in BLOCK vectors each: memory is read once.
//
// needs: T, LOG, IN_PLACE, BLOCK, the vec of a vector

struct Params {
  slices: u32,
  // Vectors of a slice, and between neighbours in it.
  length: u32,
  inner: u32,
  row_group: u32,
  stride: u32,
  x_offset: u32,
  y_offset: u32,
}

@group(0) @binding(0) var<storage, read> x: array<V>;
@group(0) @binding(1) var<storage, read_write> y: array<V>;

alias A = f32;
const NUMBERS = BLOCK * WIDTH;

fn fetch(i: u32) -> V {
  if IN_PLACE == 1u {
    return y[params.y_offset + i];
  }
  return x[params.x_offset + i];
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let row_group = params.row_group;
  let inner = params.inner;
  let number = flat_group(group, groups) * (256u / row_group) + row_group_index(lane, row_group, params.stride);
  // A row group without a slice reads the last one.
  let slice = min(number, params.slices - 1u);
  let start = slice / inner * params.length * inner + slice % inner;
  let rank = row_group_rank(lane, row_group, params.stride);
  let length = select(0u, params.length, number < params.slices);

  // All loads come first, so that all are on their way at once.
  var vectors: array<V, BLOCK>;
  for (var j = 0u; j < BLOCK; j++) {
    vectors[j] = fetch(start + min(rank + j * row_group, params.length - 1u) * inner);
  }
  var block: array<f32, NUMBERS>;
  for (var j = 0u; j < BLOCK; j++) {
    let numbers = unpack(vectors[j]);
    let inside = rank + j * row_group < length;
    for (var l = 0u; l < WIDTH; l++) {
      block[j * WIDTH + l] = select(-inf(), numbers[l], inside);
    }
  }

  // The largest number, and NaN if one is. Bits tell that in two steps for each number, max_nan takes many.
  var largest = block[0];
  var bits = 0u;
  for (var k = 0u; k < NUMBERS; k++) {
    largest = max(largest, block[k]);
    bits = max(bits, bitcast<u32>(block[k]) & 0x7fffffffu);
  }
  largest = select(largest, nan(), bits > 0x7f800000u);
  let m = row_group_reduce(MAX, lane, row_group, params.stride, largest);

  var sum = 0.0;
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
      let value = block[j * WIDTH + l];
      if LOG == 1u {
        numbers[l] = value - max(m, LOWEST) - scale;
      } else {
        numbers[l] = value * scale;
      }
    }
    let at = rank + j * row_group;
    if at < length {
      y[params.y_offset + start + at * inner] = pack(numbers);
    }
  }
}
