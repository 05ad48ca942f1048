// C = residual + activation(alpha · A · Bᵀ + bias) for few rows of A and a quantised B: what takes the time is
// reading B once.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. LANES invocations share COLUMNS_PER_GROUP rows of B, and add their
// parts in workgroup memory.
//
// needs: TA, TC, ROWS, COLUMNS_PER_GROUP, ACTIVATION, lib/quant_product, where elements of the product go (lib/quant_results,
// lib/quant_results_appended or lib/quant_results_qk_norm), lib/quant_lanes, lib/quant_sums, a format, a reader of A, lib/workgroup_tiles

const THREADS: u32 = 128u;
const LANES: u32 = 32u;
const COLUMNS: u32 = THREADS / LANES * COLUMNS_PER_GROUP;

const_assert COLUMNS_PER_GROUP == 2u || !PAIRED;

fn make_tile(tile: u32, index: u32) {
  let first_row = tile / params.tiles_n * ROWS;
  let first_column = tile % params.tiles_n * COLUMNS;
  let column = first_column + index / LANES * COLUMNS_PER_GROUP;
  add_lanes(sums_of_lane(first_row, lines_from(column), index % LANES), index);
  // Neighbours write neighbouring columns.
  let x = index % COLUMNS;
  let r = index / COLUMNS;
  if r < ROWS && first_row + r < params.m && first_column + x < params.n {
    let at = (r * COLUMNS_PER_GROUP + x % COLUMNS_PER_GROUP) * THREADS + x / COLUMNS_PER_GROUP * LANES;
    var neighbour = 0.0;
    if PAIRED {
      // The other column of a group.
      neighbour = sh[at ^ THREADS];
    }
    let ahead = read_ahead(first_row + r, first_column + x);
    finish_element(sh[at], neighbour, ahead, first_row + r, first_column + x);
  }
  finish_workgroup(first_column, COLUMNS, index, THREADS, read_head_ahead(first_column, index));
}
