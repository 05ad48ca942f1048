// The exponent of the largest magnitude of each column of an f32 matrix (lib/f16_parts).
//
// A workgroup takes 16 columns.
//
// needs: lib/f16_parts, lib/line_largest

const THREADS: u32 = 256u;
const COLUMNS: u32 = 16u;
// Invocations that share a column.
const SHARERS: u32 = THREADS / COLUMNS;

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let column = flat_group(workgroup.id, workgroup.count) * COLUMNS + lane % COLUMNS;
  let sharer = lane / COLUMNS;
  let rows = select(0u, params.rows, column < params.columns);
  find_largest(lane, sharer, COLUMNS, params.offset + column, params.ld, rows);
  if sharer == 0u && column < params.columns {
    exponents[column] = line_exponent(sh_largest[lane]);
  }
}
