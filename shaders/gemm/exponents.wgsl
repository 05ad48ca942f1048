// The exponent of the largest magnitude of each line of an f32 matrix: of each row, or of each column. A line of
// zeros has 0. A line with an infinity or a NaN has 128. The least is −113, of which 2^(14 − exponent) is a number.
//
// A workgroup takes one row, or 32 columns at once.
//
// needs: ROWS

struct Params {
  rows: u32,
  columns: u32,
  offset: u32,
  ld: u32,
}

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read_write> exponents: array<i32>;

const THREADS: u32 = 256u;
// Columns that a workgroup takes at once, and the invocations that share one.
const WIDTH: u32 = 32u;
const HEIGHT: u32 = THREADS / WIDTH;

// Magnitudes of floats are ordered as their bits are.
var<workgroup> sh_largest: array<u32, THREADS>;

fn magnitude(i: u32) -> u32 {
  return bitcast<u32>(source[i]) & 0x7fffffffu;
}

// Leaves the largest of `count` values that lie `stride` apart in the first of them.
fn fold(lane: u32, first: u32, count: u32, stride: u32) {
  for (var half = count / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if first / stride < half {
      sh_largest[lane] = max(sh_largest[lane], sh_largest[lane + half * stride]);
    }
  }
  workgroupBarrier();
}

fn exponent(bits: u32) -> i32 {
  return select(max(i32(bits >> 23u) - 127, -113), 0, bits == 0u);
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let flat = flat_group(group, groups);
  var largest = 0u;
  if ROWS == 1u {
    if flat >= params.rows {
      return;
    }
    for (var column = lane; column < params.columns; column += THREADS) {
      largest = max(largest, magnitude(params.offset + flat * params.ld + column));
    }
    sh_largest[lane] = largest;
    fold(lane, lane, THREADS, 1u);
    if lane == 0u {
      exponents[flat] = exponent(sh_largest[0]);
    }
  } else {
    if flat * WIDTH >= params.columns {
      return;
    }
    let column = flat * WIDTH + lane % WIDTH;
    for (var row = lane / WIDTH; row < params.rows && column < params.columns; row += HEIGHT) {
      largest = max(largest, magnitude(params.offset + row * params.ld + column));
    }
    sh_largest[lane] = largest;
    fold(lane, lane, HEIGHT, WIDTH);
    if lane < WIDTH && column < params.columns {
      exponents[column] = exponent(sh_largest[lane]);
    }
  }
}
