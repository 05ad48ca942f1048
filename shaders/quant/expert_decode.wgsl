// Products of rows of A with the matrices of a quantised stack that indices choose for them: what takes the time is
// reading these once for each row.
//
// A workgroup makes COLUMNS columns of a row of C. LANES invocations share COLUMNS_PER_GROUP rows of B, and add their parts in
// workgroup memory.
//
// needs: TA, TC, COLUMNS_PER_GROUP, GATED, GATE, lib/gate, lib/quant_lanes, lib/quant_expert_sums, a format, a reader of A,
// lib/workgroup_tiles

const THREADS: u32 = 128u;
const LANES: u32 = 32u;
const ROWS: u32 = 1u;
const COLUMNS: u32 = THREADS / LANES * RESULTS;

fn make_tile(tile: u32, index: u32) {
  let row = tile / params.tiles_n;
  if !is_written(row) {
    return;
  }
  let first_column = tile % params.tiles_n * COLUMNS;
  add_lanes(sums_of_experts(row, first_column + index / LANES * RESULTS, index % LANES), index);
  // Neighbours write neighbouring columns.
  if index < COLUMNS && first_column + index < params.n {
    let at = index % RESULTS * THREADS + index / RESULTS * LANES;
    let column = first_column + index;
    var x = sh[at] + bias_of(row, column);
    if GATED == 1u {
      x = glu(GATE, x, sh[THREADS + at] + bias_of(row, params.n + column));
    }
    put(x, row, column);
  }
}
