// y = (v − mean) / √(mean((v − mean)²) + eps) · weight + bias for each row v = x + residual.
//
// A team of invocations works on each row. Each of them reads BLOCK numbers at a time: if WHOLE, one block holds all of
// its numbers and is kept; else the row is read once for the mean, once for the variance and once for the result.
//
// needs: T, INPUT, RESIDUAL, BLOCK, WHOLE, HAS_WEIGHT, HAS_BIAS

struct Params {
  rows: u32,
  columns: u32,
  team: u32,
  eps: f32,
  x_offset: u32,
  residual_offset: u32,
  weight_offset: u32,
  bias_offset: u32,
  y_offset: u32,
}

@group(0) @binding(0) var<storage, read> x: array<T>;
@group(0) @binding(1) var<storage, read> residual: array<T>;
@group(0) @binding(2) var<storage, read> weight: array<T>;
@group(0) @binding(3) var<storage, read> bias: array<T>;
@group(0) @binding(4) var<storage, read_write> y: array<T>;

fn scaled(value: f32, column: u32) -> f32 {
  var result = value;
  if HAS_WEIGHT == 1u {
    result *= f32(weight[params.weight_offset + column]);
  }
  if HAS_BIAS == 1u {
    result += f32(bias[params.bias_offset + column]);
  }
  return result;
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let team = params.team;
  let row = row_of(flat_group(group, groups) * (256u / team) + team_number(lane, team, 1u));
  let rank = team_rank(lane, team, 1u);
  let n = f32(params.columns);
  var block: array<f32, BLOCK>;
  if WHOLE == 1u {
    block = load_block(row, rank);
  }

  var sum = 0.0;
  for (var k = rank; k < row.columns; k += BLOCK * team) {
    if WHOLE == 0u {
      block = load_block(row, k);
    }
    // A block is summed by itself, which keeps rounding errors small.
    var block_sum = 0.0;
    for (var j = 0u; j < BLOCK; j++) {
      block_sum += block[j];
    }
    sum += block_sum;
  }
  let mean = team_reduce(SUM, lane, team, 1u, sum) / n;

  var squares = 0.0;
  for (var k = rank; k < row.columns; k += BLOCK * team) {
    if WHOLE == 0u {
      block = load_block(row, k);
    }
    var block_squares = 0.0;
    for (var j = 0u; j < BLOCK; j++) {
      let deviation = select(0.0, block[j] - mean, k + j * team < row.columns);
      block_squares += deviation * deviation;
    }
    squares += block_squares;
  }
  let scale = inverseSqrt(team_reduce(SUM, lane, team, 1u, squares) / n + params.eps);

  for (var k = rank; k < row.columns; k += BLOCK * team) {
    if WHOLE == 0u {
      block = load_block(row, k);
    }
    for (var j = 0u; j < BLOCK; j++) {
      let column = k + j * team;
      if column < row.columns {
        y[row.y + column] = T(scaled((block[j] - mean) * scale, column));
      }
    }
  }
}
