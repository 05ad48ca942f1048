// C = residual + activation(alpha · A · Bᵀ + bias) like quant/decode, for devices whose subgroups have SUBGROUP
// invocations.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. A subgroup shares SPAN rows of B, and adds its parts
// without workgroup memory.
//
// needs: TA, TC, ROWS, SPAN, SUBGROUP, ACTIVATION, lib/quant_product, lib/quant_sums, a format, a reader of A,
// lib/subgroup_tiles

const COLUMNS: u32 = SUBGROUPS * SPAN;

fn make_tile(tile: u32, subgroup: u32, lane: u32) {
  let first_row = tile / params.tiles_n * ROWS;
  let column = tile % params.tiles_n * COLUMNS + subgroup * SPAN;
  var sums = sums_of_lane(first_row, lines_from(column), lane);
  for (var i = 0u; i < ROWS * SPAN; i++) {
    sums[i] = subgroupAdd(sums[i]);
  }
  // The lanes take turns at writing.
  for (var i = 0u; i < ROWS * SPAN; i++) {
    let row = first_row + i / SPAN;
    if i % SUBGROUP == lane && row < params.m && column + i % SPAN < params.n {
      finish(sums[i], row, column + i % SPAN);
    }
  }
}
