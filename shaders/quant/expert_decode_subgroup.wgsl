// Products of rows of A with the matrices of a quantised stack that indices choose for them, like
// quant/expert_decode, for devices whose subgroups have SUBGROUP invocations.
//
// A workgroup makes COLUMNS columns of a row of C. A subgroup shares COLUMNS_PER_GROUP rows of B, and adds its parts without
// workgroup memory.
//
// needs: TA, TC, COLUMNS_PER_GROUP, SUBGROUP, GATED, GATE, lib/quant_expert_sums, lib/gate, a format, a reader of A,
// lib/subgroup_tiles

const ROWS: u32 = 1u;
const COLUMNS: u32 = SUBGROUPS * RESULTS;

fn make_tile(tile: u32, subgroup: u32, lane: u32) {
  let row = tile / params.tiles_n;
  if !is_written(row) {
    return;
  }
  let column = tile % params.tiles_n * COLUMNS + subgroup * RESULTS;
  let sums = sums_of_experts(row, column, lane);
  let first = subgroupAdd(sums[0]);
  let second = subgroupAdd(sums[1]);
  if GATED == 1u {
    if lane == 0u && column < params.n {
      let opened = second + bias_of(row, params.n + column);
      put(glu(GATE, first + bias_of(row, column), opened), row, column);
    }
  } else if lane < COLUMNS_PER_GROUP && column + lane < params.n {
    put(select(first, second, lane == 1u) + bias_of(row, column + lane), row, column + lane);
  }
}
