// The exponent of the largest magnitude of each column of an f32 matrix (lib/f16_parts).
//
// A workgroup takes 16 columns.

const THREADS: u32 = 256u;
const COLUMNS: u32 = 16u;
// Invocations that share a column.
const SHARERS: u32 = THREADS / COLUMNS;

var<workgroup> sh_largest: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let column = flat_group(workgroup.id, workgroup.count) * COLUMNS + lane % COLUMNS;
  let sharer = lane / COLUMNS;
  let end = select(0u, params.rows, column < params.columns);
  var largest = 0u;
  for (var row = sharer; row < end; row += SHARERS) {
    largest = max(largest, bitcast<u32>(source[params.offset + row * params.ld + column]) & 0x7fffffffu);
  }
  sh_largest[lane] = largest;
  for (var half = SHARERS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if sharer < half {
      sh_largest[lane] = max(sh_largest[lane], sh_largest[lane + half * COLUMNS]);
    }
  }
  if sharer == 0u && column < params.columns {
    exponents[column] = line_exponent(sh_largest[lane]);
  }
}
