// C = residual + activation(alpha · A · Bᵀ + bias) like quant/decode, for devices whose subgroups have SUBGROUP
// invocations.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. A subgroup shares COLUMNS_PER_GROUP rows of B, and adds its parts
// without workgroup memory.
//
// needs: TA, TC, ROWS, COLUMNS_PER_GROUP, SUBGROUP, ACTIVATION, lib/quant_product, where elements of the product go
// (lib/quant_results,
// lib/quant_results_appended or lib/quant_results_qk_norm), lib/quant_sums, a format, a reader of A, lib/subgroup_tiles

const COLUMNS: u32 = SUBGROUPS * COLUMNS_PER_GROUP;

const_assert COLUMNS_PER_GROUP == 2u || !PAIRED;

fn make_tile(tile: u32, subgroup: u32, lane: u32) {
  let first_row = tile / params.tiles_n * ROWS;
  let first_column = tile % params.tiles_n * COLUMNS;
  let column = first_column + subgroup * COLUMNS_PER_GROUP;
  var sums = sums_of_lane(first_row, lines_from(column), lane);
  for (var i = 0u; i < ROWS * COLUMNS_PER_GROUP; i++) {
    sums[i] = subgroupAdd(sums[i]);
  }
  // The lanes take turns at writing.
  for (var i = 0u; i < ROWS * COLUMNS_PER_GROUP; i++) {
    let row = first_row + i / COLUMNS_PER_GROUP;
    if i % SUBGROUP == lane && row < params.m && column + i % COLUMNS_PER_GROUP < params.n {
      var neighbour = 0.0;
      if PAIRED {
        // The other column of a group.
        neighbour = sums[i ^ 1u];
      }
      let ahead = read_ahead(row, column + i % COLUMNS_PER_GROUP);
      finish_element(sums[i], neighbour, ahead, row, column + i % COLUMNS_PER_GROUP);
    }
  }
  let index = subgroup * SUBGROUP + lane;
  finish_workgroup(first_column, COLUMNS, index, SUBGROUPS * SUBGROUP, read_head_ahead(first_column, index));
}
