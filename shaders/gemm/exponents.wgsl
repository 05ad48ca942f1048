// The exponent of the largest magnitude of each line of an f32 matrix: of each row, or of each column. A line
// of zeros has 0. A line with an infinity or a NaN has 128. The least is −113, of which 2^(14 − exponent) is
// a number.
//
// A workgroup takes one row, or 16 columns at once.
//
// needs: ROWS

const THREADS: u32 = 256u;
// Lines that a workgroup takes at once, and the invocations that share one.
const LINES: u32 = select(16u, 1u, ROWS == 1u);
const SHARERS: u32 = THREADS / LINES;

// Magnitudes of floats are ordered as their bits are.
var<workgroup> sh_largest: array<u32, THREADS>;

fn exponent(magnitude: u32) -> i32 {
  return select(max(i32(magnitude >> 23u) - 127, -113), 0, magnitude == 0u);
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let line = flat_group(workgroup.id, workgroup.count) * LINES + lane % LINES;
  let sharer = lane / LINES;
  let lines = select(params.columns, params.rows, ROWS == 1u);
  let length = select(params.rows, params.columns, ROWS == 1u);
  let along = select(params.ld, 1u, ROWS == 1u);
  let first = params.offset + line * select(1u, params.ld, ROWS == 1u);
  let end = select(0u, length, line < lines);
  var largest = 0u;
  for (var i = sharer; i < end; i += SHARERS) {
    largest = max(largest, bitcast<u32>(source[first + i * along]) & 0x7fffffffu);
  }
  sh_largest[lane] = largest;
  for (var half = SHARERS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if sharer < half {
      sh_largest[lane] = max(sh_largest[lane], sh_largest[lane + half * LINES]);
    }
  }
  if sharer == 0u && line < lines {
    exponents[line] = exponent(sh_largest[lane]);
  }
}
