// y = exp(x − m) / Σ exp(x − m) along an axis, m = max x.
//
// A team of invocations works on each slice. Each of them reads BLOCK numbers at a time: if WHOLE, one block holds all
// of its numbers and is kept; else maximum and sum are taken together, the sum being rescaled when the maximum rises
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), and the numbers are read again.
//
// needs: T, IN_PLACE, BLOCK, WHOLE

struct Params {
  slices: u32,
  length: u32,
  inner: u32,
  team: u32,
  stride: u32,
  x_offset: u32,
  y_offset: u32,
}

@group(0) @binding(0) var<storage, read> x: array<T>;
@group(0) @binding(1) var<storage, read_write> y: array<T>;

const LOWEST = -0x1.fffffep+127f;

struct Slice {
  // Index of the first number, without the offsets of x and y.
  start: u32,
  // Numbers in it; 0 for a team that has no slice.
  length: u32,
}

// BLOCK numbers, from the k-th on, a team's size apart; −∞ past the end.
fn load_block(slice: Slice, k: u32) -> array<f32, BLOCK> {
  var block: array<f32, BLOCK>;
  for (var j = 0u; j < BLOCK; j++) {
    block[j] = -inf();
    let at = k + j * params.team;
    if at < slice.length {
      let i = slice.start + at * params.inner;
      if IN_PLACE == 1u {
        block[j] = f32(y[params.y_offset + i]);
      } else {
        block[j] = f32(x[params.x_offset + i]);
      }
    }
  }
  return block;
}

fn store(slice: Slice, k: u32, value: f32) {
  if k < slice.length {
    y[params.y_offset + slice.start + k * params.inner] = T(value);
  }
}

// The largest number of a block; NaN if one is. Bits tell that in two steps for each number, max_nan takes many.
fn block_max(block: ptr<function, array<f32, BLOCK>>) -> f32 {
  var m = (*block)[0];
  var bits = 0u;
  for (var j = 0u; j < BLOCK; j++) {
    m = max(m, (*block)[j]);
    bits = max(bits, bitcast<u32>((*block)[j]) & 0x7fffffffu);
  }
  return select(m, nan(), bits > 0x7f800000u);
}

// exp(x − m) for x ≤ m, 0 for an x of −∞. Drivers' exp is only asked for what it can do.
fn exp_below(x: f32, m: f32) -> f32 {
  return exp(max(x - max(m, LOWEST), -150.0));
}

// 1 / sum; NaN for a slice of nothing but −∞, or with +∞ or NaN.
fn factor(m: f32, sum: f32) -> f32 {
  return select(1.0 / sum, nan(), is_nan(m) || is_inf(m));
}

fn softmax_whole(slice: Slice, lane: u32, rank: u32) {
  var block = load_block(slice, rank);
  let m = team_reduce(MAX, lane, params.team, params.stride, block_max(&block));
  var sum = 0.0;
  for (var j = 0u; j < BLOCK; j++) {
    block[j] = exp_below(block[j], m);
    sum += block[j];
  }
  let scale = factor(m, team_reduce(SUM, lane, params.team, params.stride, sum));
  for (var j = 0u; j < BLOCK; j++) {
    store(slice, rank + j * params.team, block[j] * scale);
  }
}

fn softmax_online(slice: Slice, lane: u32, rank: u32) {
  let step = BLOCK * params.team;
  var mine = -inf();
  var sum = 0.0;
  for (var k = rank; k < slice.length; k += step) {
    var block = load_block(slice, k);
    let m = max_nan(mine, block_max(&block));
    var block_sum = 0.0;
    for (var j = 0u; j < BLOCK; j++) {
      block_sum += exp_below(block[j], m);
    }
    sum = sum * exp_below(mine, m) + block_sum;
    mine = m;
  }
  let m = team_reduce(MAX, lane, params.team, params.stride, mine);
  let total = team_reduce(SUM, lane, params.team, params.stride, sum * exp_below(mine, m));
  let scale = factor(m, total);
  for (var k = rank; k < slice.length; k += step) {
    var block = load_block(slice, k);
    for (var j = 0u; j < BLOCK; j++) {
      store(slice, k + j * params.team, exp_below(block[j], m) * scale);
    }
  }
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let number =
    flat_group(group, groups) * (256u / params.team) + team_number(lane, params.team, params.stride);
  let start = number / params.inner * params.length * params.inner + number % params.inner;
  let slice = Slice(start, select(0u, params.length, number < params.slices));
  let rank = team_rank(lane, params.team, params.stride);
  if WHOLE == 1u {
    softmax_whole(slice, lane, rank);
  } else {
    softmax_online(slice, lane, rank);
  }
}
